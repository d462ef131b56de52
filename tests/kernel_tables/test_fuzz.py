"""Damaged captures, the commands on each; more of them by hand: `python -m tests.kernel_tables.fuzz --files 10000`."""

import pytest

from tests.kernel_tables.fuzz.__main__ import counts, trials

FILES, SEED = 240, 2


@pytest.fixture(scope="module")
def done() -> list[dict]:
    return list(trials(SEED, range(FILES)))


def test_no_command_crashes_hangs_or_gives_a_figure_of_what_cannot_be(done):
    assert [trial for trial in done if trial["faults"]] == []


def test_the_damages_are_of_all_kinds_and_what_is_whole_is_not_refused(done):
    outcomes = counts(done)
    assert {against for against, _, _ in outcomes} >= {
        "SQLite",
        "gzip",
        "names",
        "nothing against it",
        "quick_check",
        "times",
    }
    untouched = [trial["outcome"] for trial in done if set(trial["damages"]) == {"leave_whole"}]
    assert len(untouched) > FILES / 50 and set(untouched) == {"figures"}
