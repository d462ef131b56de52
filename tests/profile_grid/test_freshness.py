"""Whether a result is what would be measured now."""

import sys

import pytest

from cs336_model.program.loaded_files import digest_of_file
from profile_grid.results import freshness
from profile_grid.results.freshness import first_difference, present_digest, stale_reason
from profile_grid.results.results import Origin, Ran

SPECIFICATION = {"program": {"seed": 0, "sizes": {"d_ff": 32}}, "environment": []}


@pytest.fixture
def forgets(monkeypatch):
    """A function after which files are looked for anew, as in another process."""

    def forget():
        present_digest.cache_clear()
        freshness._import_folders.cache_clear()
        sys.path_importer_cache.clear()

    forget()
    yield forget
    forget()


def stale(specification=SPECIFICATION, sources="00", loaded=None, distributions=None):
    ran = Ran(loaded or {}, distributions or {})
    return stale_reason(Origin(1, SPECIFICATION, "00", ran, {}), specification, sources)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return digest_of_file(path)


def test_a_result_of_the_same_settings_sources_and_files_is_fresh(tmp_path, monkeypatch, forgets):
    monkeypatch.chdir(tmp_path)
    loaded = {"my_model.py": write(tmp_path / "my_model.py", "a = 1")}
    assert stale(loaded=loaded) is None


def test_other_settings_are_told_with_both_values():
    wanted = {"program": {"seed": 0, "sizes": {"d_ff": 48}}, "environment": []}
    assert stale(wanted) == "the settings have changed: program.sizes.d_ff was 32 and is 48"


def test_a_setting_that_came_or_went_is_told():
    assert first_difference({"a": 1}, {"a": 1, "b": 2}) == "b was not there and is 2"
    assert first_difference({"a": [1, 2]}, {"a": [1]}) == "a was [1, 2] and is [1]"


def test_other_sources_are_told():
    assert stale(sources="01") == "the program, or what measures it, has changed"


def test_a_file_that_the_program_ran_and_that_changed_is_named(tmp_path, monkeypatch, forgets):
    monkeypatch.chdir(tmp_path)
    loaded = {"pack/layers.py": write(tmp_path / "pack" / "layers.py", "a = 1")}
    write(tmp_path / "pack" / "layers.py", "a = 2")
    assert stale(loaded=loaded) == "a file that the measured program ran has changed: pack/layers.py"


def test_a_package_outside_the_project_is_found_where_python_would_find_it(tmp_path, monkeypatch, forgets):
    digest = write(tmp_path / "elsewhere" / "theirs" / "__init__.py", "import nothing_that_is_there")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    forgets()
    assert present_digest("theirs/__init__.py") == digest
    assert "theirs" not in sys.modules
    write(tmp_path / "elsewhere" / "theirs" / "__init__.py", "other")
    forgets()
    assert present_digest("theirs/__init__.py") != digest


def test_a_file_that_is_gone_has_changed_and_a_package_that_is_not_installed_here_has_not(
    tmp_path, monkeypatch, forgets
):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "pack" / "other.py", "")
    loaded = {"pack/layers.py": "00", "not_installed/model.py": "00"}
    assert "pack/layers.py" in stale(loaded=loaded)
    assert stale(loaded={"not_installed/model.py": "00"}) is None


def test_an_installed_package_of_another_version_has_changed_and_one_that_is_not_installed_here_has_not():
    assert stale(distributions={"pytest": pytest.__version__}) is None
    assert stale(distributions={"no-such-package": "1.0"}) is None
    assert stale(distributions={"pytest": "0.1"}) == (
        f"a package that the measured program ran has changed: pytest was 0.1 and is {pytest.__version__}"
    )


def test_a_package_in_development_is_found_by_its_own_finder(tmp_path, monkeypatch, forgets):
    digest = write(tmp_path / "src" / "theirs.py", "a = 1")

    class Finder:
        @classmethod
        def find_spec(cls, name, path=None, target=None):
            from importlib.util import spec_from_file_location

            return spec_from_file_location(name, tmp_path / "src" / "theirs.py") if name == "theirs" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert present_digest("theirs.py") == digest
