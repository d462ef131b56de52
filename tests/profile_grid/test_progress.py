"""Which measurement runs, how many remain."""

import json
import os
import time

import pytest

from profile_grid.host.progress import PLANNED_VARIABLE, STARTED_VARIABLE, ProgressLine


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """A function that measures once, after others that ended so many seconds ago, and gives the lines that were said.
    Planned are measurements that take so many seconds: first this one, then those of `ages`, then the others."""

    def run(planned, ages, elapsed_s):
        now = time.time()
        monkeypatch.setenv(STARTED_VARIABLE, str(now - elapsed_s))
        paths = [tmp_path / f"run{number}" / "timing.json" for number in range(len(planned))]
        if planned:
            (tmp_path / "planned.json").write_text(json.dumps(dict(zip(map(str, paths), planned, strict=True))))
            monkeypatch.setenv(PLANNED_VARIABLE, str(tmp_path / "planned.json"))
        for path, age in zip(paths[1:], ages, strict=False):
            path.parent.mkdir()
            path.touch()
            os.utime(path, (now - age, now - age))
        announced = ProgressLine("timing", "mini_ctx64_forward", paths[0] if paths else tmp_path / "timing.json")
        announced.print_start()
        announced.print_end(0.0)
        return capsys.readouterr().err.splitlines()

    return run


def test_a_measurement_is_counted_among_those_that_this_snakemake_has_to_make(said):
    first, last = said(planned=[1.0] * 24, ages=[10, 20, 30, 5000, 5000], elapsed_s=60)
    assert first == "[ 4/24] timing  mini_ctx64_forward ..."
    assert last == "[ 4/24] timing  mini_ctx64_forward: 0.0 s; 20 to go, about 5 min"


def test_what_remains_is_told_by_the_seconds_that_each_was_thought_to_take(said):
    assert said(planned=[30.0, 70.0, *[5.0] * 40], ages=[10], elapsed_s=60)[1].endswith("; 40 to go, about 2 min")


def test_the_first_measurement_tells_no_pace(said):
    assert said(planned=[1.0] * 24, ages=[], elapsed_s=60)[1] == "[ 1/24] timing  mini_ctx64_forward: 0.0 s"


def test_the_last_measurement_says_nothing_of_what_remains(said):
    assert said(planned=[1.0] * 2, ages=[5], elapsed_s=60)[1] == "[2/2] timing  mini_ctx64_forward: 0.0 s"


def test_a_measurement_that_is_made_again_is_counted_once(said, tmp_path):
    (tmp_path / "run0").mkdir()
    (tmp_path / "run0" / "timing.json").touch()
    assert said(planned=[1.0] * 2, ages=[5], elapsed_s=60)[1] == "[2/2] timing  mini_ctx64_forward: 0.0 s"


def test_a_plan_that_was_deleted_meanwhile_costs_the_total_alone(said, monkeypatch, tmp_path):
    monkeypatch.setenv(PLANNED_VARIABLE, str(tmp_path / "deleted.json"))
    assert said(planned=[], ages=[], elapsed_s=60)[1] == "[1/?] timing  mini_ctx64_forward: 0.0 s"


def test_a_job_that_is_run_by_hand_does_not_know_the_total(said, monkeypatch):
    monkeypatch.delenv(PLANNED_VARIABLE, raising=False)
    assert said(planned=[], ages=[], elapsed_s=60)[0] == "[1/?] timing  mini_ctx64_forward ..."
