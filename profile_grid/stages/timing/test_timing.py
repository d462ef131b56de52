"""The stage without a profiler: what its processes are told."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes.job import Job
from profile_grid.stages.timing import measure as timing


@pytest.mark.parametrize(("settings", "told"), [({"accuracy": True}, []), ({"accuracy": False}, ["--accuracy", "no"])])
def test_the_comparison_with_fp64_is_left_out_where_it_is_switched_off(tmp_path, monkeypatch, settings, told):
    commands = []
    monkeypatch.setattr(
        timing,
        "results_of_ranks",
        lambda job, what, result, command: (commands.append(command(0)), SimpleNamespace(seconds=1.0)),
    )
    monkeypatch.setattr(timing, "merge_rank_results", lambda ranks: ({}, {}))
    monkeypatch.setattr(timing, "stage_output", lambda *args: None)
    timing.measure(Job({"program": {"run": "a"}, **settings}, tmp_path, tmp_path, Path("log"), 9.0, Leases()))
    (command,) = commands
    assert [word for word in command if word in ("--accuracy", "no")] == told
