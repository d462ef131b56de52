"""What a process has loaded, as its result tells it."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import importlib, json, sys
for name in sys.argv[2:]:
    importlib.import_module(name)
from cs336_model.program.loaded_distributions import loaded_distributions
from cs336_model.program.loaded_files import loaded_files
print(json.dumps([loaded_files(sys.argv[1].split()), loaded_distributions(sys.argv[1].split())]))
"""


def loaded(folder, named, *modules):
    """The files that a process knows after these imports, with our own taken out."""
    files, _ = loaded_files_and_distributions(folder, named, *modules)
    return {path: digest for path, digest in files.items() if not path.startswith("cs336_model/")}


def loaded_files_and_distributions(folder, named, *modules):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, named, *modules], cwd=folder, capture_output=True, text=True, check=True,
        env={"PYTHONPATH": f"{ROOT}:{folder}:{folder}/site-packages"},
    )  # fmt: skip
    return json.loads(done.stdout)


def write(folder, **texts):
    for name, text in texts.items():
        path = folder / f"{name.replace('__', '/', 1)}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_module_that_is_imported_by_a_name_made_up_at_run_time_is_loaded(tmp_path):
    text = "import importlib\nimportlib.import_module('hel' + 'per')\n"
    assert list(loaded(write(tmp_path, model=text, helper=""), "model:Model", "model")) == ["helper.py", "model.py"]


def test_a_file_of_a_package_is_told_below_the_folder_that_it_is_imported_from(tmp_path):
    write(tmp_path, theirs__layers="").joinpath("theirs/__init__.py").write_text("from theirs import layers\n")
    assert list(loaded(tmp_path, "theirs", "theirs")) == ["theirs/__init__.py", "theirs/layers.py"]


def test_a_package_without_an_init_file_counts_too(tmp_path):
    assert list(loaded(write(tmp_path, space__part=""), "", "space.part")) == ["space/part.py"]


def test_an_installed_package_counts_where_the_model_is_in_it_and_else_does_not(tmp_path):
    write(tmp_path / "site-packages", theirs__model="import library\n", library="")
    assert list(loaded(tmp_path, "theirs.model:Model", "theirs.model")) == ["theirs/model.py"]
    assert loaded(tmp_path, "", "theirs.model") == {}


def test_the_standard_library_does_not_count(tmp_path):
    assert loaded(tmp_path, "", "json", "xml.dom") == {}


def test_the_digest_is_of_the_content_alone(tmp_path):
    first = loaded(write(tmp_path, model="a = 1\n"), "", "model")
    assert loaded(write(tmp_path, model="a = 1\n"), "", "model") == first
    assert loaded(write(tmp_path, model="a = 2\n"), "", "model") != first


def install(folder, name, version, text):
    """An installed package of one module and this version."""
    write(folder / "site-packages", **{name: text})
    told = folder / "site-packages" / f"{name}-{version}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (told / "top_level.txt").write_text(f"{name}\n")


def test_the_versions_of_what_the_model_imports_from_installed_packages_are_told(tmp_path):
    install(tmp_path, "deeper", "0.3", "class Part: pass\n")
    install(tmp_path, "layers", "2.1", "import deeper\n")
    install(tmp_path, "unrelated", "9.9", "")
    write(
        tmp_path, model="import helper, json\n", helper="import importlib\ndeeper = importlib.import_module('deeper')\n"
    )
    _, versions = loaded_files_and_distributions(tmp_path, "model:Model", "model", "unrelated", "layers")
    assert versions == {"deeper": "0.3"}
    write(tmp_path, helper="import layers\n")
    _, versions = loaded_files_and_distributions(tmp_path, "model:Model", "model", "unrelated")
    assert versions == {"deeper": "0.3", "layers": "2.1"}


def test_a_package_counts_of_which_the_model_takes_a_number_or_that_it_imports_late(tmp_path):
    install(tmp_path, "sizes", "1.0", "WIDTH = 3\n")
    install(tmp_path, "late", "2.0", "")
    write(tmp_path, model="from sizes import WIDTH\ndef forward():\n    import late.part\n")
    _, versions = loaded_files_and_distributions(tmp_path, "model:Model", "model", "late")
    assert versions == {"late": "2.0", "sizes": "1.0"}


def test_an_installed_model_has_a_version_of_its_own(tmp_path):
    install(tmp_path, "theirs", "1.0", "")
    assert loaded_files_and_distributions(tmp_path, "theirs:Model", "theirs")[1] == {"theirs": "1.0"}
    assert loaded_files_and_distributions(tmp_path, "cs336_model.model:Model", "theirs")[1] == {}
