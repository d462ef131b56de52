"""The stage without a profiler: the options of its processes."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes.job import Job
from profile_grid.stages.timing import measure as timing


@pytest.mark.parametrize(("accuracy", "option"), [(True, None), (False, "no")])
def test_the_comparison_with_fp64_is_left_out_if_it_is_switched_off(tmp_path, monkeypatch, accuracy, option):
    options_of_runs = []

    def results_of_ranks(job, title, result_path, **options):
        options_of_runs.append(options)
        return [], SimpleNamespace(seconds=1.0)

    monkeypatch.setattr(timing, "results_of_ranks", results_of_ranks)
    monkeypatch.setattr(timing, "merge_rank_results", lambda ranks: ({}, {}))
    monkeypatch.setattr(timing, "stage_output", lambda *args: None)
    specification = {"program": {"run": "a"}, "accuracy": accuracy}
    timing.measure(Job(specification, tmp_path, tmp_path, Path("log"), 9.0, Leases()))
    assert options_of_runs == [{"accuracy": option}]
