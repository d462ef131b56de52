"""Where the seconds of a process are booked."""

import subprocess
import sys
import time

import pytest

from cs336_model.program import process
from cs336_model.program.process import Progress, process_age_seconds


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """A clock that shows clock[0] seconds."""
    now = [100.0]
    monkeypatch.setattr(process.time, "perf_counter", lambda: now[0])
    return now


def test_time_of_an_inner_stage_is_booked_once(clock):
    progress = Progress()
    with progress.stage("profiler"):
        clock[0] += 2
        with progress.stage("measured"):
            clock[0] += 30
        clock[0] += 3
    assert (progress.seconds["profiler"], progress.seconds["measured"]) == (5, 30)


def test_a_stage_that_comes_twice_adds_up_and_one_that_fails_counts(clock):
    progress = Progress()
    with progress.stage("profiler"):
        clock[0] += 1
    with pytest.raises(RuntimeError), progress.stage("profiler"):
        clock[0] += 4
        raise RuntimeError
    assert progress.seconds["profiler"] == 5
    assert progress.during == "profiler"


def test_the_age_of_a_process_begins_before_its_first_line():
    code = "import time; time.sleep(0.2); from cs336_model.program.process import *; print(process_age_seconds())"
    started = time.perf_counter()
    age = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert 0.2 <= age <= time.perf_counter() - started + 0.02  # starts are known to 10 ms


def test_without_proc_the_age_is_counted_from_the_import(monkeypatch, clock):
    monkeypatch.setattr(process.Path, "exists", lambda path: False)
    monkeypatch.setattr(process, "_IMPORTED_S", 40.0)
    assert process_age_seconds() == 60.0


def test_shortly_before_the_limit_a_run_writes_during_what_it_will_be_stopped(run_benchmark, monkeypatch):
    from cs336_model.program import benchmark

    written, steps = [], benchmark.run_steps

    def as_long_as_it_takes(subject, count, clock):
        """The steps again and again, until the draft is written."""
        seconds, enough_s = steps(subject, count, clock), time.monotonic() + 30
        while not written and time.monotonic() < enough_s:
            steps(subject, count, clock)
        return seconds

    def write(result, path):
        written.append(result)
        write_result(result, path)

    write_result = benchmark.write_result
    monkeypatch.setattr(process, "_limit_schedule", None)
    monkeypatch.setattr(process, "process_age_seconds", lambda: 0.0)
    # of this process: reading the stacks of threads that run may crash Python
    monkeypatch.setattr(process.faulthandler, "dump_traceback_later", lambda seconds: None)
    monkeypatch.setattr(benchmark, "run_steps", as_long_as_it_takes)
    monkeypatch.setattr(benchmark, "write_result", write)
    result = run_benchmark("--time-limit-s", "2", "--accuracy", "no")
    draft = written[0]
    assert draft["status"] == "overdue" and draft["reason"].split()[0] in ("warmup", "measure")
    assert draft["machine"]["device"] == "cpu" and draft["step_seconds"] == []
    assert len(written) == 2 and result["status"] == "complete"  # a run that ends in time replaces it
