"""Which measurement runs, how many remain."""

import os
import time

import pytest

from profile_grid.measuring.progress import STARTED_VARIABLE, TOTAL_VARIABLE, Announced


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """A function that measures once, after files of these ages in seconds, and gives the lines that were said."""

    def run(total, ages, elapsed_s):
        now = time.time()
        monkeypatch.setenv(STARTED_VARIABLE, str(now - elapsed_s))
        if total is not None:
            monkeypatch.setenv(TOTAL_VARIABLE, str(total))
        for number, age in enumerate(ages):
            path = tmp_path / f"run{number}" / "timing.json"
            path.parent.mkdir()
            path.touch()
            os.utime(path, (now - age, now - age))
        announced = Announced("capture", "mini_ctx64_forward", tmp_path / "run" / "capture.json")
        announced.begins()
        announced.ends(0.0)
        return capsys.readouterr().err.splitlines()

    return run


def test_a_measurement_is_counted_among_those_that_this_snakemake_has_to_make(said):
    first, last = said(total=24, ages=[10, 20, 30, 5000, 5000], elapsed_s=60)
    assert first == "[ 4/24] capture mini_ctx64_forward ..."
    assert last == "[ 4/24] capture mini_ctx64_forward: 0.0 s; 20 to go, about 5 min"


def test_the_first_measurement_tells_no_pace(said):
    assert said(total=24, ages=[], elapsed_s=60)[1] == "[ 1/24] capture mini_ctx64_forward: 0.0 s"


def test_the_last_measurement_says_nothing_of_what_remains(said):
    assert said(total=2, ages=[5], elapsed_s=60)[1] == "[2/2] capture mini_ctx64_forward: 0.0 s"


def test_a_job_that_is_run_by_hand_does_not_know_the_total(said, monkeypatch):
    monkeypatch.delenv(TOTAL_VARIABLE, raising=False)
    assert said(total=None, ages=[], elapsed_s=60)[0] == "[1/?] capture mini_ctx64_forward ..."
