"""What the host does in each phase of a step: the stage that traces it, and the table of a run."""

from types import SimpleNamespace

import pytest

from kernel_recorder.nsys_profile import profile_command
from kernel_tables.errors import NotConserved
from kernel_tables.trace import Trace
from profile_grid.host.processes.job import Job
from profile_grid.results.capture_identity import file_identity, identity_difference, write_specification
from profile_grid.stages.capture.measure import write_status_file
from profile_grid.stages.host_trace import measure as host_trace
from profile_grid.stages.host_trace.tables import HOST_TIME, host_time, run_tables
from tests.kernel_tables.synthetic import Synthetic
from tests.profile_grid.made_up_results import as_written

MS = 10**6
SPECIFICATION = {"program": {"device": "auto", "run": "small"}, "sources": ["osrt"]}


def traced() -> Synthetic:
    """Two steps of a forward pass of 10 ms and a backward pass of 20; thread 2 launches the backward pass, thread 1
    waits for it."""
    capture = Synthetic().range("measure", 0, 80 * MS)
    for begin in (5 * MS, 45 * MS):
        capture.range("step", begin, begin + 32 * MS).range("forward", begin, begin + 10 * MS)
        capture.range("backward", begin + 10 * MS, begin + 30 * MS)
        for at, thread in ((2, 1), (4, 1), (12, 2), (14, 2)):
            capture.kernel("gemm", begin + at * MS, start=begin + (at + 1) * MS, duration=MS, thread=thread)
        capture.os_call("pthread_cond_wait", begin + 11 * MS, 18 * MS).os_call("read", begin + 2 * MS, MS // 2)
        capture.python_sample(begin + 7 * MS, ("linear", "/x/site-packages/torch/nn/functional.py"))
        capture.python_sample(begin + 20 * MS, ("backward", "/x/site-packages/torch/_tensor.py"))
    for row in capture.rows["CUPTI_ACTIVITY_KIND_RUNTIME"]:
        row["end"] = row["start"] + MS
    return capture


def test_on_every_thread_calls_and_the_time_in_none_add_up_to_the_phase_of_a_step(tmp_path):
    with Trace(traced().write(tmp_path / "trace.sqlite")) as trace:
        table = host_time(trace)
    own_ms = table.groupby(["phase", "thread"])["own_ms"].sum()
    assert own_ms.to_dict() == {("forward", 0): 10, ("backward", 0): 20, ("backward", 1): 20}
    rows = table.set_index(["phase", "thread", "doing"])["own_ms"]
    assert rows[("forward", 0, "launching")] == 1.5 and rows[("forward", 0, "in the OS runtime")] == 0.5
    assert rows[("backward", 0, "in the OS runtime")] == 18 and rows[("backward", 1, "in no call")] == 18


def test_the_launching_thread_and_what_its_samples_stand_for_are_told(tmp_path):
    with Trace(traced().write(tmp_path / "trace.sqlite")) as trace:
        table = host_time(trace)
    launching = table[table["launches_most"]].groupby("phase")["thread"].first()
    assert launching.to_dict() == {"forward": 0, "backward": 1}
    assert set(table["launches"]) == {2}
    stacks = table[table["doing"] == "Python stack"].set_index("function")
    # two of the three gaps between samples are 13 ms
    assert stacks.loc["linear (torch.nn.functional)", ["samples", "estimated_ms"]].tolist() == [2, 13.0]
    assert stacks.loc["backward (torch._tensor)", "samples_in_calls"] == 2


def test_time_that_does_not_add_up_is_an_error(tmp_path):
    capture = traced().range("forward", 12 * MS, 18 * MS, thread=2)  # one on a thread of its own, beside the first
    with Trace(capture.write(tmp_path / "trace.sqlite")) as trace, pytest.raises(NotConserved, match="of a thread"):
        host_time(trace)


def result_of(path, **changes) -> SimpleNamespace:
    complete = {"status": "complete", "reason": None, "specification": {"sources": ["osrt", "python"]}}
    complete["files"] = {path.name: SimpleNamespace(**file_identity(path))}
    return SimpleNamespace(**(complete | changes))


def test_what_was_asked_for_and_is_not_there_is_said(tmp_path):
    capture = traced()
    without_samples = [row for row in capture.rows["NVTX_EVENTS"] if row["eventType"] != 34]  # of Python stacks
    capture.rows["NVTX_EVENTS"] = without_samples
    path = capture.write(tmp_path / "host_trace.sqlite")
    write_specification(path, {"sources": ["osrt", "python"]})
    status, tables = run_tables(result_of(path), tmp_path)
    assert status == {
        "status": "complete", "reason": None, "warnings": ["the trace of the host has no Python stacks"],
    }  # fmt: skip
    assert as_written(tables["host_time"]) == as_written(HOST_TIME.empty())
    other = result_of(path, specification={"sources": ["osrt"]})
    assert "not the trace of this run" in run_tables(other, tmp_path)[0]["reason"]


def job(folder, **specification) -> Job:
    (folder / "scratch").mkdir()
    specification = SPECIFICATION | specification
    return Job(specification, folder, folder / "scratch", folder / "log", 1, None)


@pytest.mark.parametrize(
    ("gpu", "nsys", "reason"), [(False, "nsys", "there is none here"), (True, None, "install Nsight Systems")]
)
def test_without_a_gpu_or_nsys_the_run_stands_and_the_reason_is_said(tmp_path, monkeypatch, gpu, nsys, reason):
    monkeypatch.setattr(host_trace, "gpu_is_visible", lambda: gpu)
    monkeypatch.setattr(host_trace.nsys, "find", lambda: nsys)
    result = host_trace.measure(job(tmp_path))
    assert result["status"] == "unsupported" and reason in result["reason"]
    path = tmp_path / "host_trace.sqlite"
    unsupported = result_of(path, status="unsupported", reason=result["reason"], specification=SPECIFICATION)
    assert identity_difference(unsupported, path) is None
    assert run_tables(unsupported, tmp_path)[0]["status"] == "unsupported"


def test_the_trace_stands_beside_the_runs_own_capture(tmp_path, monkeypatch):
    def capture(job: Job) -> dict:
        write_status_file(job.folder / "capture.sqlite", "complete", None, job.specification)
        return {"status": "complete"}

    monkeypatch.setattr("profile_grid.stages.capture.measure.measure", capture)
    monkeypatch.setattr(host_trace, "gpu_is_visible", lambda: True)
    monkeypatch.setattr(host_trace.nsys, "find", lambda: "nsys")
    (tmp_path / "capture.sqlite").write_text("the run's own")
    assert host_trace.measure(job(tmp_path)) == {"status": "complete"}
    assert (tmp_path / "capture.sqlite").read_text() == "the run's own" and (tmp_path / "host_trace.sqlite").exists()


def test_only_a_trace_of_the_host_asks_nsys_for_what_slows_the_program_down(tmp_path):
    plain = profile_command(["python"], tmp_path / "x")
    assert "--trace=cuda,nvtx" in plain and not any("python-sampling" in word for word in plain)
    tracing = profile_command(["python"], tmp_path / "x", host=("osrt", "python"))
    assert {"--trace=cuda,nvtx,osrt", "--python-sampling=true", "--sample=none"} <= set(tracing)
