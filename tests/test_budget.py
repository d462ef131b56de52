"""The budget of all tests."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import budget

ROOT = Path(__file__).parents[1]


def test_a_run_within_the_margin_passes_and_says_what_it_took():
    assert budget.verdict(cpu_s=11.0, unit_s=0.1, units=100, margin=1.25) == (
        True,
        "the tests took 11 s of processor time, 110 units; the budget is 100 (tests/budget.toml)",
    )


def test_a_run_beyond_the_margin_fails_and_says_by_how_much():
    is_within, message = budget.verdict(cpu_s=13.0, unit_s=0.1, units=100, margin=1.25)
    assert not is_within
    assert "130 units; the budget is 100 (tests/budget.toml): 30 % over it" in message


def test_a_machine_that_is_half_as_fast_has_the_same_verdict():
    assert budget.verdict(26.0, 0.2, 100, 1.25)[0] == budget.verdict(13.0, 0.1, 100, 1.25)[0]


def test_processor_time_counts_what_this_process_does_and_not_what_it_waits():
    before = budget.spent_s()
    time.sleep(0.05)
    waited_s = budget.spent_s() - before
    while budget.spent_s() - before < 0.2:
        pass
    assert waited_s < 0.05
    assert 0.001 < budget.loop_s() < 1


CONFTEST = """
from tests import budget
from tests.budget import (
    pytest_collection_modifyitems, pytest_configure, pytest_runtest_teardown, pytest_sessionfinish,
    pytest_terminal_summary, pytest_testnodedown,
)

budget.SLOW = ("checks/test_slow.py",)
budget.LIMIT = {{"units": {{"not slow": {units}, "slow": 10**8}}, "margin": 1.25}}
"""


def run_of_two_files(folder: Path, units: int, *arguments: str) -> subprocess.CompletedProcess:
    """All of a project with a quick test and a slow one, or what the arguments choose."""
    (folder / "checks").mkdir()
    settings = f"[pytest]\ntestpaths = checks\npythonpath = {ROOT}\nmarkers = slow: some\n"
    (folder / "pytest.ini").write_text(settings)
    (folder / "checks/conftest.py").write_text(CONFTEST.format(units=units))
    for name in ("quick", "slow"):
        content = f"def test_{name}():\n    assert sum(range(3_000_000))\n"
        (folder / f"checks/test_{name}.py").write_text(content)
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-rA", *arguments]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # importing the others takes seconds
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("units", "arguments", "status", "says"),
    [
        (1, ("-n1",), 1, "% over it"),
        (10**9, ("-n0",), 0, "the budget is 1000000000"),
        (1, ("-n0", "checks/test_quick.py"), 0, None),  # some tests have no budget
    ],
)
def test_a_run_of_all_tests_fails_beyond_the_budget(tmp_path, units, arguments, status, says):
    done = run_of_two_files(tmp_path, units, *arguments)
    assert done.returncode == status, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert ("the tests took" in done.stdout) == (says is not None)
    assert says is None or says in done.stdout


@pytest.mark.parametrize(
    ("arguments", "ran", "budget_of_it"),
    [
        (("-n1",), ["quick"], "the budget is 1000000 ("),
        (("-n1", "-m", "slow"), ["slow"], "the budget is 100000000 ("),
        (("-n0", "-m", "slow or not slow"), ["quick", "slow"], None),
        (("-n0", "checks/test_slow.py"), ["slow"], None),
        (("-n0", "-k", "test_slow"), ["slow"], None),
    ],
)
def test_slow_tests_run_where_they_are_asked_for(tmp_path, arguments, ran, budget_of_it):
    done = run_of_two_files(tmp_path, 10**6, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    names = [name for name in ("quick", "slow") if f"PASSED checks/test_{name}.py" in done.stdout]
    assert names == ran
    assert ("the budget is" in done.stdout) == (budget_of_it is not None)
    assert budget_of_it is None or budget_of_it in done.stdout


def test_the_slow_tests_exist_and_are_those_of_the_second_command_of_the_checks():
    assert [path for path in budget.SLOW if not (ROOT / path).exists()] == []
    assert (ROOT / ".ci/run").read_text().endswith(".venv/bin/pytest\n.venv/bin/pytest -m slow\n")
