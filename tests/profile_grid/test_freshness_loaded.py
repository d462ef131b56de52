"""Whether a measured program would load the code that it loaded: a user's folder is measured once, and then changed."""

import importlib
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from profile_grid.freshness import loaded_code
from profile_grid.freshness.loaded_code import changed_code
from tests.cs336_model.test_loaded_code import loaded_and_distributions, write

MODEL = """
import importlib.util
from pathlib import Path
import code, helper, library, pack.layers, ns.part
try:
    import optional_fast
except ImportError:
    pass
spec = importlib.util.spec_from_file_location("impl", Path(__file__).parent / "lib" / "impl.py")
spec.loader.exec_module(importlib.util.module_from_spec(spec))
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The folder of a user who has a model, and what a program loaded there."""
    folder = tmp_path_factory.mktemp("measured")
    write(folder, model=MODEL, helper="N = 1", ns__part="", lib__impl="", code="", benchmark="", pack__layers="")
    write(folder, pack____init__="")
    write(folder / "site-packages", library="")
    return folder, loaded_and_distributions(folder, "", "model")[0]


@pytest.fixture
def users(measured, tmp_path, monkeypatch):
    """A copy of that folder, which is the working folder."""
    folder = Path(shutil.copytree(measured[0], tmp_path / "copy"))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([loaded_code.CHECKOUT, str(folder / "site-packages")]))
    return folder


@pytest.fixture
def judged(measured, users):
    """A function that says why what was measured is stale in the copy, as another process would."""

    def judge(same_machine=True, record=None):
        loaded_code._change_by_record.clear()
        for name in ("_bytes_digest", "_code_digest", "_search", "_names_that_hide"):
            getattr(loaded_code, name).cache_clear()
        importlib.invalidate_caches()
        return changed_code(measured[1] if record is None else record, same_machine)

    return judge


def created(name, text=""):
    def edit(folder):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    return edit


def deleted(name):
    return lambda folder: (folder / name).unlink()


def older(name, text):
    def edit(folder):
        (folder / name).write_text(text)
        os.utime(folder / name, (0, 0))

    return edit


def touched(folder):
    for path in folder.rglob("*"):
        os.utime(path)


def moved_to_pythonpath(folder):
    (folder / "helper.py").rename(folder / "lib" / "helper.py")
    os.environ["PYTHONPATH"] += f"{os.pathsep}{folder / 'lib'}"


CHANGED, GONE = "a file that the measured program ran has changed", "a file that the measured program ran is gone"
ANOTHER = "the measured program would run another file now"
FOUND = "a module that the measured program did not find is here now"
HIDDEN = "a module that the measured program ran is hidden by another of its name now"
IN_PLACE = "instead of helper.py"
STALE = {
    "an edited helper": (created("helper.py", "N = 2"), f"{CHANGED}: helper.py"),
    "an edited helper with an older time": (older("helper.py", "N = 2"), f"{CHANGED}: helper.py"),
    "an edited model": (created("model.py", "N = 2"), f"{CHANGED}: model.py"),
    "a package of the helper's name": (created("helper/__init__.py"), f"{ANOTHER}: helper/__init__.py {IN_PLACE}"),
    "an extension of the helper's name": (created("helper.abi3.so"), f"{ANOTHER}: helper.abi3.so {IN_PLACE}"),
    "a package of the name of a part": (
        created("ns/part/__init__.py"), f"{ANOTHER}: ns/part/__init__.py instead of ns/part.py"
    ),
    "code in a namespace package": (created("ns/__init__.py"), f"{ANOTHER}: ns/__init__.py"),
    "a module that was not found": (created("optional_fast.py"), f"{FOUND}: optional_fast"),
    "a package that was not found": (created("optional_fast/__init__.py"), f"{FOUND}: optional_fast"),
    "an edited module that was loaded by its path": (created("lib/impl.py", "N = 2"), f"{CHANGED}: lib/impl.py"),
    "a deleted module that was loaded by its path": (deleted("lib/impl.py"), f"{GONE}: lib/impl.py"),
    "a deleted helper": (deleted("helper.py"), f"{GONE}: helper.py"),
    "a deleted model": (deleted("model.py"), f"{GONE}: model.py"),
    "a deleted file of a package": (deleted("pack/layers.py"), f"{GONE}: pack/layers.py"),
    "an edited file with the name of a standard module": (created("code.py", "N = 2"), f"{CHANGED}: code.py"),
    "a file that hides a standard module": (created("pathlib.py"), f"{HIDDEN}: pathlib"),
    "a package that hides a standard one": (created("json/__init__.py"), f"{HIDDEN}: json"),
    "a file that hides an installed package": (created("library.py"), f"{HIDDEN}: library"),
}  # fmt: skip
FRESH = {
    "nothing": lambda folder: None,
    "a touch of every file": touched,
    "a comment": created("helper.py", "# one\nN = 1  # more"),
    "a docstring": created("helper.py", '"""Says what it is."""\nN = 1'),
    "an edit of a file that nobody imports": created("benchmark.py", "N = 2"),
    "a new file that nobody asked for": created("another.py"),
    "a folder of a standard module's name without code": created("json/note.txt"),
    "a file of the name of a part of the interpreter": created("sys.py"),
    "a file that cannot be imported by its name": created("json.old.py"),
    "a helper that moved to a folder on PYTHONPATH": moved_to_pythonpath,
}


@pytest.mark.parametrize(("edit", "reason"), STALE.values(), ids=STALE)
@pytest.mark.parametrize("same_machine", [True, False], ids=["here", "elsewhere"])
def test_what_would_load_other_code_is_stale_on_any_machine(judged, users, edit, reason, same_machine):
    edit(users)
    assert judged(same_machine) == reason


@pytest.mark.parametrize("edit", FRESH.values(), ids=FRESH)
def test_what_loads_the_same_code_is_fresh(judged, users, edit, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"])  # an edit may add to it
    edit(users)
    assert judged() is None


def test_a_change_that_is_taken_back_is_fresh_again(judged, users):
    created("ns/__init__.py")(users)
    assert judged() is not None
    deleted("ns/__init__.py")(users)
    assert judged() is None


def test_a_module_that_was_not_found_and_is_installed_now_counts_on_the_machine_that_measured(judged, users):
    created("site-packages/optional_fast.py")(users)
    assert judged(same_machine=True) == f"{FOUND}: optional_fast"
    assert judged(same_machine=False) is None


OF_A_PACKAGE = {"namespaces": [], "by_path": [], "not_found": [], "others": []}


def record_of(name, path, digest="00", root="elsewhere"):
    return OF_A_PACKAGE | {"modules": {name: {"root": root, "path": path, "digest": digest}}}


def test_a_package_that_lay_elsewhere_and_is_not_here_has_not_changed(judged):
    assert judged(record=record_of("not_installed.model", "not_installed/model.py")) is None


def test_a_file_that_is_gone_from_a_package_that_is_here_has_changed_on_the_machine_that_measured(judged):
    record = record_of("pack.gone", "pack/gone.py")
    assert judged(record=record) == f"{GONE}: pack/gone.py"
    assert judged(same_machine=False, record=record) is None


def test_an_installed_package_of_another_content_counts_on_the_machine_that_measured(judged):
    record = record_of("library", "library.py")
    assert judged(record=record) == f"{CHANGED}: library.py"
    assert judged(same_machine=False, record=record) is None


def test_an_extension_module_counts_on_the_machine_that_measured(judged):
    record = record_of("fast", "fast.cpython-311-x86_64-linux-gnu.so", root=".")
    assert judged(record=record) == f"{GONE}: fast.cpython-311-x86_64-linux-gnu.so"
    assert judged(same_machine=False, record=record) is None


def test_a_package_in_development_is_found_by_its_own_finder(judged, users, monkeypatch):
    class Finder:
        @classmethod
        def find_spec(cls, name, path=None, target=None):
            return importlib.util.spec_from_file_location(name, users / "lib" / "impl.py") if name == "impl" else None

    record = record_of("impl", "impl.py")
    assert judged(record=record) is None
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert judged(record=record) == f"{CHANGED}: impl.py"


def test_nothing_is_imported(judged, users):
    created("helper.py", "raise SystemExit('imported')")(users)
    assert judged() == f"{CHANGED}: helper.py"
    assert {"model", "helper", "pack", "optional_fast"}.isdisjoint(sys.modules)


@pytest.mark.parametrize("record", [{}, {"modules": []}, record_of("a", 3), OF_A_PACKAGE | {"modules": {"a": {}}}])
def test_a_damaged_record_is_stale(judged, record):
    assert judged(record=record) == "the result does not say what the measured program loaded"


def test_a_record_that_many_results_have_is_judged_once(judged, measured, users):
    assert judged() is None
    created("helper.py", "N = 2")(users)
    assert changed_code(json.loads(json.dumps(measured[1])), True) is None
    assert judged() is not None
