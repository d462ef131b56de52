"""All-reduce alone: what two processes measure, and its table."""

from types import SimpleNamespace

import pytest

from profile_grid.results.load_runs import MeasuredRun
from profile_grid.results.results import COMPLETE, ProgramResult, _require_times
from profile_grid.stages.all_reduce.measure import measure
from profile_grid.stages.all_reduce.tables import study_tables
from profile_grid.stages.timing.tables import STATISTICS
from profile_grid.study.dimensions import LEADING
from profile_grid.typed_json import parse_as
from tests.profile_grid.test_ranks import job


def table_of(facts: dict):
    """The table of a run whose stage left these facts."""
    entry = dict.fromkeys(LEADING, "x")
    result = SimpleNamespace(status=COMPLETE, facts=facts)
    return study_tables([MeasuredRun(entry, {"all_reduce": result}, {"all_reduce": result})])["all_reduce"]


def test_an_all_reduce_takes_as_long_as_its_slowest_rank():
    size = {"bytes": 3 * 10**9, "warmup_seconds": []}
    table = table_of({"ranks": [[size | {"seconds": seconds}] for seconds in ([1.0, 2.0], [1.5, 1.0])]})
    assert table[["bytes", *STATISTICS]].values.tolist() == [
        [3 * 10**9, 2, 1750.0, pytest.approx(353.55, abs=0.01), 1500.0, 2000.0]
    ]


def test_two_processes_reduce_a_megabyte_and_leave_a_result_as_every_stage_does(tmp_path):
    all_reduce_job = job(tmp_path, measured_steps=3)
    all_reduce_job.specification["megabytes"] = [1, 2]
    result = measure(all_reduce_job)
    table = table_of(result["facts"])
    assert table["bytes"].tolist() == [10**6, 2 * 10**6]
    assert table["n"].tolist() == [3, 3]
    assert (table["min_ms"] > 0).all()
    record = {name: result["program"][name] for name in ProgramResult.__annotations__}
    program = parse_as(ProgramResult, record, "program")
    _require_times(program)
    assert program.step_seconds == result["facts"]["ranks"][0][1]["seconds"]
