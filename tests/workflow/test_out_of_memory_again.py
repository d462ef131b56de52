"""A run that is out of memory beside a process that was ending is measured once more, when that is gone."""

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from profile_grid.host.leases.gpu_leases import Lease
from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes.job import Job
from profile_grid.study.stage import Stage
from profile_grid.study.stages import TIMING
from tests.default_values import DEFAULT_VALUES
from workflow.scripts import measure

PROGRAM = {"run": "a_run", "device": "cuda", "dimensions": {"context_length": 1, "mode": "forward", **DEFAULT_VALUES}}


@pytest.fixture
def runs(monkeypatch):
    """What the stage was asked for, run by run: its leases, and its scratch folder, which nothing else has used."""
    seen = []

    def run(job):
        on_lease = job.leases.on_lease
        on_lease(Lease(("GPU-a",), 0.0, (), is_alone=job.leases.must_be_alone))
        job.leases.acquired_leases.append(Lease(("GPU-a",), 0.0, (), is_alone=job.leases.must_be_alone))
        (job.scratch / "attempt-1").mkdir()
        seen.append((job.leases.must_be_alone, job.scratch))
        machine = {"other_processes": 1}
        status = "complete" if job.leases.must_be_alone else "out_of_memory"
        return {"status": status, "reason": None, "program": {"machine": machine}, "seconds": {}}

    @contextmanager
    def leases_for(*_, on_lease, **__):
        leases = Leases(Path("socket"))
        leases.on_lease = on_lease
        yield leases

    monkeypatch.setattr(Stage, "load", lambda stage, module: SimpleNamespace(measure=run))
    monkeypatch.setattr(measure, "leases_for", leases_for)
    free = {True: "139.0 GiB free", False: "139.8 GiB free"}
    monkeypatch.setattr(measure, "notes_before", lambda program, gpus, others_may_end: [free[others_may_end]])
    return seen


def measured(tmp_path):
    return measure.run_stage(TIMING, Job({"program": PROGRAM}, tmp_path, tmp_path, tmp_path / "log", 9, Leases()))


def test_it_is_measured_once_more_alone(runs, tmp_path):
    result = measured(tmp_path)
    assert [alone for alone, _ in runs] == [False, True]
    assert (result["status"], result["program"]["machine"]["other_processes"]) == ("complete", 1)
    assert result["notes"] == ["139.8 GiB free"]


def test_out_of_memory_alone_is_the_result(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(Leases, "were_alone", lambda self: True)
    assert measured(tmp_path)["status"] == "out_of_memory"
    assert len(runs) == 1


def test_who_was_on_the_gpu_is_not_told_where_one_of_ours_was_ending(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "OUT_OF_MEMORY", "never")
    assert measured(tmp_path)["program"]["machine"]["other_processes"] is None
