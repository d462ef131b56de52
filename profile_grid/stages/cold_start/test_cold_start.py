"""Why a first step is slow: every nanosecond of it has one cause, compared with later steps."""

from types import SimpleNamespace

import pytest

from kernel_tables.diagnosis.scope import Scope
from kernel_tables.trace import Trace
from profile_grid.host.processes.job import Job
from profile_grid.results.capture_identity import file_identity, write_specification
from profile_grid.stages.capture.measure import write_status_file
from profile_grid.stages.cold_start import measure as cold_start
from profile_grid.stages.cold_start.tables import FIRST_STEP, NO_CALL, NO_OPERATOR, first_step_table, run_tables
from tests.kernel_tables.synthetic import Synthetic

MS = 10**6


def write_capture(path, device: int = 0):
    """Two steps, with launches of 2 ms that alternate between two threads. The very first takes 30 ms, 20 of which load
    its module. In the first step, memory of the GPU is allocated for 5 ms, and memory of the host for 1 ms."""
    capture = Synthetic().range("measure", 0, 200 * MS).range("step", 0, 100 * MS).range("step", 100 * MS, 150 * MS)
    for number, (at_ms, name) in enumerate([(10, "gemm"), (50, "gemm"), (60, "add"), (110, "gemm"), (120, "add")]):
        capture.kernel(name, at_ms * MS, start=(at_ms + 1) * MS, duration=MS, device=device, thread=1 + number % 2)
    for row in capture.rows["CUPTI_ACTIVITY_KIND_RUNTIME"]:
        row["end"] = row["start"] + (30 if row["start"] == 10 * MS else 2) * MS
    capture.call(12 * MS, 901, api="cuLibraryLoadData", duration=20 * MS)
    capture.call(70 * MS, 902, api="cudaMalloc_v3020", duration=5 * MS)
    capture.call(75 * MS, 903, api="cudaHostAlloc_v3020", duration=1 * MS)
    capture.call(140 * MS, 904, api="cudaDeviceSynchronize_v3020", duration=8 * MS)
    return capture.write(path)


@pytest.fixture
def table(tmp_path):
    with Trace(write_capture(tmp_path / "cold_start.sqlite")) as trace:
        return first_step_table(Scope(trace)).set_index("cause")


def test_every_nanosecond_of_a_step_has_one_cause_and_what_is_called_inside_a_launch_is_none_of_the_launch(table):
    assert table["first_ms"].to_dict() == {
        "loading of modules": 20, "memory of the host": 1, "memory of the GPU": 5, "first launch of a kernel": 12,
        "other launches": 2, "waiting": 0, "other calls": 0, NO_CALL: 60,
    }  # fmt: skip
    assert table["first_ms"].sum() == 100 and table["later_ms"].sum() == 50


def test_the_steps_behind_it_stand_beside_the_first(table):
    assert table.loc["other launches", ["later_ms", "extra_ms", "first_calls", "later_calls"]].tolist() == [4, -2, 1, 2]
    assert table.loc["waiting", "later_ms"] == 8 and table.loc["first launch of a kernel", "first_calls"] == 2


def test_on_a_processor_operators_that_run_for_the_first_time_stand_apart(tmp_path):
    with Trace(write_capture(tmp_path / "cpu.sqlite", device=-1)) as trace:
        table = first_step_table(Scope(trace)).set_index("cause")
    assert table["first_calls"].to_dict() == {"first run of an operator": 2, "other operators": 1, NO_OPERATOR: 0}
    assert table["first_ms"].to_dict() == {"first run of an operator": 2, "other operators": 1, NO_OPERATOR: 97}


def result_of(path, **changes) -> SimpleNamespace:
    files = {path.name: SimpleNamespace(**file_identity(path))}
    complete = {"status": "complete", "reason": None, "specification": {"a": 1}, "files": files}
    return SimpleNamespace(**(complete | changes))


def test_the_table_comes_from_the_runs_own_capture_and_one_step_alone_tells_nothing(tmp_path):
    path = write_capture(tmp_path / "cold_start.sqlite")
    write_specification(path, {"a": 1})
    status, tables = run_tables(result_of(path), tmp_path)
    assert status["status"] == "complete" and tables["first_step"].dtypes.equals(FIRST_STEP.empty().dtypes)
    status, tables = run_tables(result_of(path, status="out_of_memory", reason="full"), tmp_path)
    assert (status["status"], tables) == ("out_of_memory", {})
    path.unlink()
    Synthetic().range("measure", 0, 9).range("step", 0, 9).kernel("gemm", 1).write(path)
    write_specification(path, {"a": 1})
    assert run_tables(result_of(path), tmp_path)[0]["reason"].startswith("the capture does not have the calls")


def test_the_capture_of_a_cold_start_stands_beside_the_runs_own_and_replaces_nothing(tmp_path, monkeypatch):
    def capture(job: Job) -> dict:
        write_status_file(job.folder / "capture.sqlite", "complete", None, job.specification)
        return {"status": "complete"}

    monkeypatch.setattr("profile_grid.stages.capture.measure.measure", capture)
    (tmp_path / "scratch").mkdir()
    (tmp_path / "capture.sqlite").write_text("the run's own")
    job = Job({"program": {}}, tmp_path, tmp_path / "scratch", tmp_path / "log", 1, None)
    assert cold_start.measure(job) == {"status": "complete"}
    assert (tmp_path / "capture.sqlite").read_text() == "the run's own" and (tmp_path / "cold_start.sqlite").exists()
