"""What a process has loaded, noted when it is loaded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cs336_model.program.code_digest import code_digest

ROOT = Path(__file__).parents[2]
STARTER = "cs336_model.program"
PROGRAM = "tests.cs336_model.loading_program"


def start(folder, named, *modules, line="", path=()):
    """How the program ends that imports these modules in a folder."""
    folders = [ROOT, folder / "site-packages", *path]
    return subprocess.run(
        [sys.executable, "-m", STARTER, PROGRAM, named, line, *modules], cwd=folder, capture_output=True, text=True,
        check=False, env={"PYTHONPATH": os.pathsep.join(map(str, folders))},
    )  # fmt: skip


def loaded_and_distributions(folder, named, *modules, **options):
    done = start(folder, named, *modules, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def code(folder, named, *modules, **options):
    """What the program has loaded, without the files of this project."""
    record, _ = loaded_and_distributions(folder, named, *modules, **options)
    return record | {"modules": {name: file for name, file in record["modules"].items() if file["root"] != "project"}}


def loaded(folder, named, *modules, **options):
    """The paths of the modules, by name."""
    return {name: file["path"] for name, file in code(folder, named, *modules, **options)["modules"].items()}


def write(folder, **texts):
    for name, text in texts.items():
        path = folder / f"{name.replace('__', '/', 1)}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_module_that_is_imported_by_a_name_made_up_at_run_time_is_noted(tmp_path):
    text = "import importlib\nimportlib.import_module('hel' + 'per')\n"
    assert loaded(write(tmp_path, model=text, helper=""), "", "model") == {"helper": "helper.py", "model": "model.py"}


def test_a_module_of_a_package_has_the_path_below_the_folder_that_it_is_imported_from(tmp_path):
    write(tmp_path, theirs__layers="").joinpath("theirs/__init__.py").write_text("from theirs import layers\n")
    assert loaded(tmp_path, "", "theirs") == {"theirs": "theirs/__init__.py", "theirs.layers": "theirs/layers.py"}


def test_a_file_is_below_the_working_folder_below_the_checkout_or_elsewhere(tmp_path):
    write(tmp_path / "away", other="")
    write(tmp_path / "here", model="import other\n")
    record, _ = loaded_and_distributions(tmp_path / "here", "", "model", path=[tmp_path / "away"])
    roots = {name: file["root"] for name, file in record["modules"].items()}
    assert (roots["model"], roots["other"], roots[PROGRAM]) == (".", "elsewhere", "project")


def test_a_package_without_an_init_file_counts_and_is_named(tmp_path):
    record = code(write(tmp_path, space__part=""), "", "space.part")
    assert list(record["modules"]) == ["space.part"]
    assert "space" in record["namespaces"]


def test_an_installed_package_counts_where_the_model_is_in_it_and_else_does_not(tmp_path):
    write(tmp_path / "site-packages", theirs__model="import library\n", library="")
    record = code(tmp_path, "theirs.model:Model", "theirs.model")["modules"]
    assert {name: file["root"] for name, file in record.items()} == {"theirs.model": "elsewhere"}
    assert loaded(tmp_path, "", "theirs.model") == {}


def test_the_standard_library_does_not_count(tmp_path):
    assert loaded(tmp_path, "", "json", "xml.dom") == {}


@pytest.mark.parametrize("name", ["code", "benchmark", "chunk"])
def test_a_file_counts_by_its_path_whatever_its_name(tmp_path, name):
    record = code(write(tmp_path, **{name: ""}), "", name)
    assert record["modules"][name]["path"] == f"{name}.py"
    assert name not in record["others"]


def test_a_file_of_the_name_of_the_program_that_is_not_imported_is_not_noted(tmp_path):
    write(tmp_path, benchmark="", loading_program="", __main__="")
    assert loaded(tmp_path, "", line="sys.modules['__mp_main__'] = sys.modules['__main__']") == {}


def test_the_digest_is_of_what_the_code_does(tmp_path):
    file = code(write(tmp_path, model="a = 1  # one\n"), "", "model")["modules"]["model"]
    assert file["digest"] == code_digest(b"a = 1")


def test_the_digest_is_of_the_bytes_that_ran_though_an_older_pyc_has_their_time_and_size(tmp_path):
    source = write(tmp_path, model="a = 1\n") / "model.py"
    code(tmp_path, "", "model")
    subprocess.run([sys.executable, "-c", "import model"], cwd=tmp_path, check=True)
    times = source.stat()
    source.write_text("a = 2\n")
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    record = code(tmp_path, "", "model", line="import model; assert model.a == 2, model.a")
    assert record["modules"]["model"]["digest"] == code_digest(b"a = 2")


def test_a_file_that_changes_while_it_is_measured_ends_the_program_with_one_line(tmp_path):
    edit = "import pathlib; pathlib.Path('model.py').write_text('a = 2')"
    done = start(write(tmp_path, model="a = 1"), "", "model", line=edit)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "model.py: changed while it was measured; run again\n"


def test_a_file_that_is_deleted_while_it_is_measured_does_too(tmp_path):
    done = start(write(tmp_path, model="a = 1"), "", "model", line="import pathlib; pathlib.Path('model.py').unlink()")
    assert done.stderr == "model.py: changed while it was measured; run again\n"


def test_a_comment_that_is_written_meanwhile_changes_nothing(tmp_path):
    edit = "import pathlib; pathlib.Path('model.py').write_text('a = 1  # one')"
    assert loaded(write(tmp_path, model="a = 1"), "", "model", line=edit) == {"model": "model.py"}


def test_a_module_that_is_loaded_again_with_another_content_ends_the_program(tmp_path):
    edit = """
import importlib, pathlib, model
path = pathlib.Path('model.py')
for text in ('a = 2', 'a = 1'):
    path.write_text(text)
    importlib.reload(model)
"""
    assert "model.py: changed while" in start(write(tmp_path, model="a = 1"), "", "model", line=edit).stderr


BY_PATH = """
import importlib.util
from pathlib import Path
spec = importlib.util.spec_from_file_location("impl", Path(__file__).parent / "lib" / "impl.py")
spec.loader.exec_module(importlib.util.module_from_spec(spec))
"""


def test_a_module_that_is_loaded_by_its_path_is_noted_by_that(tmp_path):
    record = code(write(tmp_path, model=BY_PATH, lib__impl="b = 1"), "", "model")
    assert record["by_path"] == [{"root": ".", "path": "lib/impl.py", "digest": code_digest(b"b = 1")}]
    assert list(record["modules"]) == ["model"]


def test_a_module_that_is_loaded_by_its_path_does_not_stand_for_one_of_its_name(tmp_path):
    record = code(write(tmp_path, model=BY_PATH, lib__impl="b = 1", impl="b = 2"), "", "impl", "model")
    assert [file["path"] for file in record["by_path"]] == ["lib/impl.py"]
    assert record["modules"]["impl"] == {"root": ".", "path": "impl.py", "digest": code_digest(b"b = 2")}


def test_a_module_on_a_path_that_the_program_added_is_noted_by_its_path(tmp_path):
    write(tmp_path, model="import sys\nsys.path.insert(0, 'lib')\nimport impl\n", lib__impl="")
    assert [file["path"] for file in code(tmp_path, "", "model")["by_path"]] == ["lib/impl.py"]


def test_a_name_that_was_not_found_is_noted_where_code_that_counts_asked_for_it(tmp_path):
    asks = "try:\n    import {}\nexcept ImportError:\n    pass\n"
    write(tmp_path / "site-packages", library=asks.format("asked_by_library"))
    write(tmp_path, model=f"import library\n{asks.format('asked_by_model')}{asks.format('json.no_such_part')}")
    assert code(tmp_path, "", "model")["not_found"] == ["asked_by_model", "json.no_such_part"]


def test_a_name_that_is_asked_for_without_importing_it_is_noted(tmp_path):
    write(tmp_path, model="import importlib.util\nimportlib.util.find_spec('asked_by_model')\n")
    assert code(tmp_path, "", "model")["not_found"] == ["asked_by_model"]


def test_the_names_of_all_else_are_noted_but_for_those_that_no_file_can_hide(tmp_path):
    write(tmp_path / "site-packages", library="")
    write(tmp_path, argparse="")  # there from the beginning: it is the one that is loaded
    others = code(write(tmp_path, model="import library, xml.dom\n"), "", "model")["others"]
    assert {"library", "xml", "json"} <= set(others)
    assert {"model", "sys", "os", "argparse", "__main__", "cs336_model"}.isdisjoint(others)


def test_an_extension_module_counts_with_every_byte(tmp_path):
    import _json

    target = tmp_path / Path(_json.__file__).name
    target.write_bytes(Path(_json.__file__).read_bytes())
    line = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("_json", {target.name!r})
importlib.util.module_from_spec(spec)
"""
    record = code(tmp_path, "", line=line)
    assert [file["path"] for file in record["by_path"]] + list(loaded(tmp_path, "", line=line).values()) == [
        target.name
    ]


def test_no_absolute_path_is_in_what_is_noted(tmp_path):
    folder = tmp_path / "canary7x31q"
    write(folder / "away", other="")
    line = "import importlib.util, sys; importlib.util.find_spec(str(__import__('pathlib').Path.cwd()))"
    write(folder, model=f"import other\n{BY_PATH}\n{line}\n", lib__impl="")
    record, _ = loaded_and_distributions(folder, "", "model", path=[folder / "away"])
    assert "canary7x31q" not in json.dumps(record)
    assert str(ROOT) not in json.dumps(record)


def test_a_program_that_is_started_through_links_as_under_nsys_notes_the_same(tmp_path):
    real, links = tmp_path / "real", tmp_path / "links"
    write(real, model=BY_PATH + "import helper, away\n", helper="", lib__impl="")
    write(tmp_path / "elsewhere", away="")
    expected = code(real, "", "model", path=[tmp_path / "elsewhere"])
    links.mkdir()
    for entry in real.iterdir():
        (links / entry.name).symlink_to(entry)
    (links / ".working-folder").symlink_to(real)
    (links / ".host-0").symlink_to(tmp_path / "elsewhere")
    assert code(links, "", "model", path=[".host-0"]) == expected


def test_the_main_module_is_the_one_that_is_named_and_has_its_arguments(tmp_path):
    text = "import sys\nprint(__name__, __spec__.name, sys.argv[1:], sys.modules['__main__'].__name__)\n"
    done = subprocess.run(
        [sys.executable, "-m", STARTER, "theirs", "--option", "3"], cwd=write(tmp_path, theirs=text),
        capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout == "__main__ theirs ['--option', '3'] __main__\n"


def install(folder, name, version, text):
    """An installed package of one module and this version."""
    write(folder / "site-packages", **{name: text})
    metadata = folder / "site-packages" / f"{name}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (metadata / "top_level.txt").write_text(f"{name}\n")


def test_the_versions_of_what_the_model_imports_from_installed_packages_are_told(tmp_path):
    install(tmp_path, "deeper", "0.3", "class Part: pass\n")
    install(tmp_path, "layers", "2.1", "import deeper\n")
    install(tmp_path, "unrelated", "9.9", "")
    write(
        tmp_path, model="import helper, json\n", helper="import importlib\ndeeper = importlib.import_module('deeper')\n"
    )
    _, versions = loaded_and_distributions(tmp_path, "model:Model", "model", "unrelated", "layers")
    assert versions == {"deeper": "0.3"}
    write(tmp_path, helper="import layers\n")
    _, versions = loaded_and_distributions(tmp_path, "model:Model", "model", "unrelated")
    assert versions == {"deeper": "0.3", "layers": "2.1"}


def test_a_package_counts_of_which_the_model_takes_a_number_or_that_it_imports_late(tmp_path):
    install(tmp_path, "sizes", "1.0", "WIDTH = 3\n")
    install(tmp_path, "late", "2.0", "")
    write(tmp_path, model="from sizes import WIDTH\ndef forward():\n    import late.part\n")
    _, versions = loaded_and_distributions(tmp_path, "model:Model", "model", "late")
    assert versions == {"late": "2.0", "sizes": "1.0"}


def test_an_installed_model_has_a_version_of_its_own(tmp_path):
    install(tmp_path, "theirs", "1.0", "")
    assert loaded_and_distributions(tmp_path, "theirs:Model", "theirs")[1] == {"theirs": "1.0"}
    assert loaded_and_distributions(tmp_path, "cs336_model.model:Model", "theirs")[1] == {}
