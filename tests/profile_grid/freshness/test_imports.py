"""Which files a program imports, found without running it, however the statement is written."""

import ast
from pathlib import Path

import pytest

from profile_grid.freshness import imports
from profile_grid.freshness.imports import (
    UnreadableSource,
    digest_of_code,
    files_of_module,
    forget_imports,
    imported_files,
    remember_sources,
)

ROOT = Path(__file__).parents[3]
PROGRAMS = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("workflow/scripts/*.py"))


def project(root, sources):
    for name, source in sources.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(source)
    return root


def test_imports_of_imports_are_found_and_libraries_are_not(tmp_path):
    sources = {"main.py": "import json\nimport pack.one\n", "pack/one.py": "from pack import two", "pack/two.py": ""}
    assert imported_files(project(tmp_path, sources), "main.py") == ["main.py", "pack/one.py", "pack/two.py"]


@pytest.mark.parametrize(
    "statement",
    [
        "from pack import (\n    one,  # the first\n    two as zwei,\n)\n",
        "from pack import (one,  # the first :)\n    two)\n",
        "from pack import one, \\\n    two\n",
        "import json; import pack.one; import pack.two\n",
        "import pack.one, pack . two\n",
        "try: import pack.one\nexcept ImportError: import pack.two\n",
        "def later():\n    from pack.one import name\n    if name: from pack import two\n",
        "match 1:\n    case 1:\n        import pack.one\n    case _:\n        from.pack import two\n",
        "with open('x') as x:\n    for y in x: import pack.one\n    else: import pack.two\n",
        "# -*- coding: latin-1 -*-\nname = '\u00e9'\nfrom pack import one, two\n",
    ],
)
def test_an_import_is_found_however_it_is_written(tmp_path, statement):
    root = project(tmp_path, {"pack/one.py": "", "pack/two.py": ""})
    (root / "main.py").write_text(statement, encoding="latin-1")
    assert imported_files(root, "main.py") == ["main.py", "pack/one.py", "pack/two.py"]


def test_text_that_looks_like_an_import_and_imports_for_type_checkers_are_none(tmp_path):
    text = "'''\nimport pack.one\n'''\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pack.two\n"
    root = project(tmp_path, {"main.py": text, "pack/one.py": "", "pack/two.py": ""})
    assert imported_files(root, "main.py") == ["main.py"]


def test_relative_imports_and_circles_are_followed(tmp_path):
    sources = {"pack/__init__.py": "", "pack/one.py": "from . import two\n", "pack/two.py": "from .one import name\n"}
    assert imported_files(project(tmp_path, sources), "pack/one.py") == sorted(sources)


def test_a_compiled_module_is_a_file_of_the_program_too(tmp_path):
    root = project(tmp_path, {"main.py": "import fast\n", "fast.abi3.so": "\x7fELF"})
    assert imported_files(root, "main.py") == ["fast.abi3.so", "main.py"]


@pytest.mark.parametrize(
    ("source", "cause"),
    [("import json\ndef broken(:\n", "line 2: invalid syntax"), ("import json\0", "null bytes")],
)
def test_a_file_that_is_no_python_is_named_with_its_line(tmp_path, source, cause):
    root = project(tmp_path, {"main.py": "import helper\n", "helper.py": source})
    with pytest.raises(UnreadableSource, match=f"helper.py: .*{cause}"):
        imported_files(root, "main.py")


def test_a_module_that_is_not_in_this_project_has_no_files(tmp_path):
    assert files_of_module(tmp_path, "torch.nn") == ()


@pytest.mark.parametrize(
    "edit",
    ["# a remark\n", '"""A docstring of the module."""\n', "\n\n", "x = 1  # a remark\n", "x = (\n    1\n)\n"],
)
def test_comments_docstrings_and_layout_do_not_count_in_the_digest_of_code(tmp_path, edit):
    root = project(tmp_path, {"main.py": "x = 1\n"})
    before = digest_of_code(root, ["main.py"])
    (root / "main.py").write_text(edit if "x =" in edit else edit + "x = 1\n")
    assert digest_of_code(root, ["main.py"]) == before
    (root / "main.py").write_text("x = 2\n")
    assert digest_of_code(root, ["main.py"]) != before


def test_the_name_of_a_file_counts_in_the_digest_of_code(tmp_path):
    root = project(tmp_path, {"one.py": "x = 1\n", "two.py": "x = 1\n"})
    assert digest_of_code(root, ["one.py"]) != digest_of_code(root, ["two.py"])


def test_a_comment_of_a_template_or_of_a_table_of_rules_does_not_count(tmp_path):
    texts = {"a.j2": "{# one #}text", "a.toml": "# one\nx = 1\n"}
    root = project(tmp_path, texts)
    before = digest_of_code(root, list(texts))
    project(tmp_path, {name: text.replace("one", "another") for name, text in texts.items()})
    assert digest_of_code(root, list(texts)) == before
    project(tmp_path, {"a.j2": "{# one #}other text"})
    assert digest_of_code(root, list(texts)) != before


def test_imports_that_were_looked_at_are_looked_at_again_after_they_are_forgotten(tmp_path):
    root = project(tmp_path, {"main.py": "import late\n"})
    assert imported_files(root, "main.py") == ["main.py"]
    project(tmp_path, {"late.py": ""})
    forget_imports()
    assert imported_files(root, "main.py") == ["late.py", "main.py"]


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """An empty memory, as of a new process, in a folder of its own."""

    def forget():
        monkeypatch.setattr(imports, "_used_facts", {})
        imports._remembered_facts.cache_clear()

    forget()
    monkeypatch.setattr(imports, "CACHE_FILE", tmp_path / "imports.json")
    yield forget
    imports._remembered_facts.cache_clear()


def test_what_was_read_once_is_not_parsed_again_until_the_file_changes(memory, monkeypatch):
    found = imports.import_statements(b"import one")
    remember_sources()
    memory()
    monkeypatch.setattr(ast, "parse", lambda content: pytest.fail("parsed again"))
    assert imports.import_statements(b"import one") == found
    with pytest.raises(pytest.fail.Exception, match="parsed again"):
        imports.import_statements(b"import two")


def test_a_process_that_reads_other_files_keeps_what_was_remembered(memory, monkeypatch):
    for content in (b"import one", b"import two"):
        imports.import_statements(content)
        remember_sources()
        memory()
    monkeypatch.setattr(ast, "parse", lambda content: pytest.fail("parsed again"))
    assert [imported.module for imported in imports.import_statements(b"import one")] == ["one"]


@pytest.mark.parametrize("damaged", ["", "[]", '{"format": 0, "files": {}}', '{"format": 1}'])
def test_a_damaged_memory_is_no_answer(memory, damaged):
    imports.CACHE_FILE.write_text(damaged)
    assert [found.module for found in imports.import_statements(b"import one")] == ["one"]


@pytest.mark.parametrize("program", [*PROGRAMS, "cs336_model/program/benchmark.py"])
def test_every_import_of_this_project_is_by_its_full_name_and_found(program):
    found = imported_files(ROOT, program)
    for path in found:
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: this project imports by full names"
    assert program in found
    assert len(found) > 1
