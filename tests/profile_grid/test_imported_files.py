"""Which files a program imports, found without running or parsing it."""

import ast
from pathlib import Path

import pytest

from profile_grid.imported_files import files_of_module, imported_files

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("workflow/scripts/*.py"))


def project(root, sources):
    for name, source in sources.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(source)
    return root


def test_imports_of_imports_are_found_and_libraries_are_not(tmp_path):
    sources = {"main.py": "import json\nimport pack.one\n", "pack/one.py": "from pack import two", "pack/two.py": ""}
    assert imported_files(project(tmp_path, sources), "main.py") == ["main.py", "pack/one.py", "pack/two.py"]


def test_an_import_over_several_lines_with_comments_is_found(tmp_path):
    statement = "from pack import (\n    one,  # the first\n    two as zwei,\n)\n"
    root = project(tmp_path, {"main.py": statement, "pack/one.py": "", "pack/two.py": ""})
    assert imported_files(root, "main.py") == ["main.py", "pack/one.py", "pack/two.py"]


def test_an_import_inside_a_function_is_found(tmp_path):
    root = project(tmp_path, {"main.py": "def later():\n    from pack.one import name\n", "pack/one.py": ""})
    assert imported_files(root, "main.py") == ["main.py", "pack/one.py"]


def test_relative_imports_and_circles_are_followed(tmp_path):
    sources = {"pack/__init__.py": "", "pack/one.py": "from . import two\n", "pack/two.py": "from .one import name\n"}
    assert imported_files(project(tmp_path, sources), "pack/one.py") == sorted(sources)


def test_a_module_that_is_not_in_this_project_has_no_files(tmp_path):
    assert files_of_module(tmp_path, "torch.nn") == []


@pytest.mark.parametrize("program", [*PROGRAMS, "cs336_model/program/benchmark.py"])
def test_every_import_statement_of_this_project_is_found_as_a_parser_finds_it(program):
    found = imported_files(ROOT, program)
    for path in found:
        for module in parsed_imports(path):
            assert set(files_of_module(ROOT, module)) <= set(found), f"{path} imports {module}"


def parsed_imports(path):
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "this project imports by full names"
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
