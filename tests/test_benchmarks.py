"""What a benchmark says where what it starts fails; the benchmarks themselves are run by hand."""

import subprocess
import sys
from argparse import Namespace

import pytest

from benchmarks import comparison, counting, schedule
from kernel_tables.counters.metrics import DO_OPERATIONS, METRICS


def sides(monkeypatch, **programs: str) -> list[subprocess.Popen]:
    """Both sides run these Python programs; the processes that were started."""
    started = []

    def start(options, side):
        started.append(subprocess.Popen([sys.executable, "-S", "-c", programs[side]], start_new_session=True))
        return started[-1]

    monkeypatch.setattr(comparison, "started_side", start)
    return started


def test_a_side_of_a_comparison_that_fails_is_told_with_its_log_and_the_other_is_ended(tmp_path, monkeypatch):
    started = sides(monkeypatch, before="raise SystemExit(3)", after="import time; time.sleep(60)")
    with pytest.raises(SystemExit, match=r"before: Snakemake ended with status 3; see .*before/snakemake\.log"):
        comparison.measured(Namespace(folder=tmp_path, limit_s=None))
    assert started[1].returncode == -15


def test_sides_of_a_comparison_are_ended_at_the_limit_and_finished_rounds_count(tmp_path, monkeypatch):
    for side in comparison.SIDES:
        (tmp_path / side / "results" / "processes").mkdir(parents=True)
        (tmp_path / side / "results" / "processes" / "1.done").touch()
    started = sides(monkeypatch, **dict.fromkeys(comparison.SIDES, "import time; time.sleep(60)"))
    assert comparison.measured(Namespace(folder=tmp_path, limit_s=0.1)) == 1
    assert [side.returncode for side in started] == [-15, -15]


def test_simulated_leases_of_a_gpu_follow_each_other_and_a_runs_tables_follow_both():
    queue = [schedule.Measurement("run", "timing", 10.0, 0.0), schedule.Measurement("run", "capture", 4.0, 0.0)]
    start, behind = schedule.BEFORE_S, schedule.BEHIND_S["capture"] + schedule.TABLES_S
    for cores, gpus, ends in ((2, 1, start + 14.0), (2, 2, start + 10.0), (1, 2, 2 * start + 14.0 + 0.3)):
        found = schedule.simulated(queue, gpus, cores)
        assert found[0] == pytest.approx(ends)
    assert found[1] == pytest.approx(ends + behind)  # the capture came last


def test_the_order_of_the_grid_is_simulated_with_every_measurement_of_it():
    every = schedule.measurements()
    assert len(every) == len({(one.run, one.stage) for one in every}) == 120
    longest = max(every, key=lambda one: one.usual_s)
    assert longest.run.startswith("2.7B_ctx1024") and longest.lease_s > 0.9 * max(one.lease_s for one in every)
    assert min(every, key=lambda one: one.usual_s).run.startswith("small_ctx128")


def test_every_metric_that_is_counted_is_in_one_group_of_those_whose_cost_is_told():
    grouped = [name for names in counting.GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(metric.name for metric in (*METRICS, *DO_OPERATIONS))


def test_seconds_of_launches_are_those_that_the_program_tells_but_for_the_first(tmp_path, monkeypatch):
    (tmp_path / "ncu").write_text("#!/bin/sh\necho '==PROF== Connected'\necho 'seconds 3.5 0.25 0.125'\n")
    (tmp_path / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert counting.seconds_of_launches({"dram__bytes_read.sum"}) == [0.25, 0.125]
    (tmp_path / "ncu").write_text("#!/bin/sh\necho no permission\nexit 9\n")
    with pytest.raises(SystemExit, match=r"(?s)status 9.*no permission"):
        counting.seconds_of_launches({"dram__bytes_read.sum"})
