"""Whether a result is what would be measured now."""

import platform

import pytest

from cs336_model.cpu import cpu_name
from profile_grid.freshness import versions
from profile_grid.results import load_runs
from profile_grid.results.load_runs import first_difference, stale_reason
from profile_grid.results.results import Origin
from profile_grid.typed_json import parse_as
from tests.profile_grid.made_up_results import CAPTURE, ENVIRONMENT, MACHINE, changed

SPECIFICATION = {"program": {"seed": 0, "sizes": {"d_ff": 32}}, "environment": ["FOO"]}
HERE = MACHINE | {"device_name": cpu_name(), "python": platform.python_version()}
LOADED = {"modules": {}, "namespaces": [], "by_path": [], "not_found": [], "others": []}


def origin(machine=HERE, **changes) -> Origin:
    """What made a result on this machine."""
    defaults = {"sources": "00", "specification": SPECIFICATION, "program__machine": machine, "program__loaded": LOADED}
    defaults["environment"] = ENVIRONMENT | {"digests": {"FOO": None}}
    return parse_as(Origin, changed(CAPTURE, **(defaults | changes)))


def stale(specification=SPECIFICATION, sources="00", **changes):
    return stale_reason(origin(**changes), specification, sources)


@pytest.fixture(autouse=True)
def another_process(monkeypatch):
    """No GPU, and an environment that is read again."""
    monkeypatch.setattr(versions, "gpu_names", lambda: ())
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    load_runs._present_environment.cache_clear()
    yield
    load_runs._present_environment.cache_clear()


def test_a_result_of_the_same_settings_sources_code_versions_and_variables_is_fresh():
    assert stale() is None


def test_other_settings_are_told_with_both_values():
    wanted = {"program": {"seed": 0, "sizes": {"d_ff": 48}}, "environment": ["FOO"]}
    assert stale(wanted) == "the settings have changed: program.sizes.d_ff was 32 and is 48"


def test_a_setting_that_came_or_went_is_told():
    assert first_difference({"a": 1}, {"a": 1, "b": 2}) == "b was not there and is 2"
    assert first_difference({"a": [1, 2]}, {"a": [1]}) == "a was [1, 2] and is [1]"


def test_other_sources_are_told():
    assert stale(sources="01") == "the program, or what measures it, has changed"


def test_other_code_is_told():
    gone = {"modules": {"gone": {"root": ".", "path": "gone.py", "digest": "00"}}}
    assert stale(program__loaded=LOADED | gone) == "a file that the measured program ran is gone: gone.py"


ELSEWHERE = {"machine": HERE | {"device_name": "Another CPU"}}


def test_another_version_is_told_on_the_kind_of_device_that_the_result_names():
    changes = {"program__loaded_distributions": {"pytest": "0.1"}}
    assert stale(**changes) == f"a version has changed: pytest was 0.1 and is {pytest.__version__}"
    assert stale(**changes, **ELSEWHERE) is None


def test_another_value_of_a_variable_is_told_on_the_kind_of_device_that_the_result_names(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("PROFILE_GRID_USERS_THREADS", raising=False)
    measured = {"environment": ENVIRONMENT | {"values": {"OMP_NUM_THREADS": "2"}}}
    assert stale(**measured) == "the environment has changed: OMP_NUM_THREADS was 2 and is 3"
    assert stale(**measured, **ELSEWHERE) is None


def test_a_gpu_that_was_not_there_is_told(monkeypatch):
    monkeypatch.setattr(versions, "gpu_names", lambda: ("NVIDIA H200",))
    wanted = {"program": {"device": "auto"}, "environment": []}
    measured = changed(CAPTURE, specification=wanted, sources="00")
    reason = "the device has changed: it was the processor and is NVIDIA H200"
    assert stale_reason(parse_as(Origin, measured), wanted, "00") == reason
