"""A capture under nsys. A fake nsys and a fake program (tests/fakes) fail in every manner that was seen."""

import json
import os
import re
import shutil
import signal
import sqlite3
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_tables.reading import nsys
from kernel_tables.reading.capture import Capture
from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes import measured_program
from profile_grid.host.processes.job import Job
from profile_grid.host.processes.programs import ProgramFailed
from profile_grid.host.processes.supervisor import ENDED_STATES, descendants, process_stat
from profile_grid.stages.capture import measure as capture
from profile_grid.stages.capture.nsys_capture import nsys_attempt
from profile_grid.study.stages import CAPTURE
from tests.kernel_tables.synthetic import Synthetic

ROOT = Path(__file__).parents[3]
FAKES = ROOT / "tests" / "fakes"
PROGRAM = {
    "run": "tiny_ctx8_forward", "dimensions": {}, "constructor": "elsewhere:Model", "device": "auto",
    "measured_steps": 2,
}  # fmt: skip
SPECIFICATION = {"program": PROGRAM, "backend": "nsys", "environment": [], "nsys_options": []}


def complete_capture():
    """Two measured steps of one forward pass with one kernel each."""
    return (
        Synthetic()
        .range("measure", 0, 1000)
        .range("step", 10, 300).range("forward", 20, 200).kernel("gemm", at=30)
        .range("step", 310, 600).range("forward", 320, 500).kernel("gemm", at=330)
    )  # fmt: skip


def without_kernels():
    return Synthetic().range("measure", 0, 1000).range("step", 10, 300).range("step", 310, 600)


def without_ranges():
    return Synthetic().kernel("gemm", at=30)


def one_step_short():
    return Synthetic().range("measure", 0, 1000).range("step", 10, 300).kernel("gemm", at=30)


def impossible():
    return complete_capture().kernel("backwards", at=40, start=60, duration=-20)


@pytest.fixture
def run_capture(tmp_path, monkeypatch):
    """A function that captures with the fakes, which behave in the given manners, and returns the content of
    capture.json. Its attributes are the folder in which it runs, and the folder of the fake nsys."""
    fakes = tmp_path / "bin"
    fakes.mkdir()
    shutil.copy(FAKES / "nsys", fakes)
    (fakes / "nsys").write_text((FAKES / "nsys").read_text().replace("/usr/bin/env python3", sys.executable))
    monkeypatch.setenv("PATH", f"{fakes}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{FAKES}{os.pathsep}{ROOT}")
    monkeypatch.setattr(measured_program, "BENCHMARK", "fake_program")
    monkeypatch.chdir(tmp_path)
    for name in ("results", "scratch"):
        (tmp_path / name).mkdir()
    for name in ("runs", "pid"):
        (tmp_path / name).touch()

    def run(nsys_manner="works", program_manner="ends well", report=None, time_limit_s=20.0, **specification):
        (report or complete_capture()).write(fakes / "report")
        (fakes / "manner").write_text(nsys_manner)
        (tmp_path / "program").write_text(program_manner)
        job = Job(
            SPECIFICATION | specification, Path("results"), Path("scratch"), Path("capture.log"), time_limit_s, Leases()
        )
        return capture.measure(job)

    run.folder, run.nsys_folder = tmp_path, fakes
    return run


@pytest.fixture
def without_namespaces(monkeypatch):
    """As on a system that does not permit them. Processes then have the same ids for the fakes and for the test."""
    monkeypatch.setattr("profile_grid.stages.capture.nsys_capture.namespace_command", lambda: ())


def is_alive(pid):
    stat = process_stat(pid)
    return stat is not None and stat.state not in ENDED_STATES


def test_calls_and_python_stacks_of_the_host_that_options_record_are_kept(run_capture):
    report = complete_capture().os_call("read", 40, 5).python_sample(50, ("forward", "/home/anna/model.py"))
    options = ["--trace=cuda,nvtx,osrt", "--python-sampling=true"]
    assert run_capture(report=report, nsys_options=options)["status"] == "complete"
    assert {*options} < {*(run_capture.nsys_folder / "profiles").read_text().split()}
    with Capture(run_capture.folder / "results" / "capture.sqlite") as kept:
        assert [sample.frames for sample in kept.python_samples()] == [("forward (model)",)]
        assert len(kept.read_columns("OSRT_API", {"start": ("start",)})["start"]) == 1


def test_a_whole_capture_is_complete_at_the_first_attempt_and_its_files_are_in_place(run_capture):
    result = run_capture()
    assert (result["status"], result["reason"], result["facts"]["attempts"]) == ("complete", None, 1)
    assert result["facts"]["nsys"].startswith("2099.1.1.1")
    assert sorted(path.name for path in Path("results").iterdir()) == ["capture.nsys-rep", "capture.sqlite"]
    with sqlite3.connect("results/capture.sqlite") as database:
        assert database.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone() == (2,)
    database.close()


@pytest.mark.parametrize(
    ("nsys_manner", "code", "reason"),
    [
        ("writes nothing", "nsys_no_report", "nsys ended with exit status 0 and wrote no report, though the program"),
        ("writes half", "nsys_export_failed", "nsys cannot export its own report"),
        ("exports half", "nsys_export_failed", "nsys cannot export its own report"),
        (
            "lacks a right",
            "nsys_ended_early",
            "nsys ended with exit status 1 before the program had written its result",
        ),
        ("cannot run", "nsys_cannot_run", "it does not run here"),
    ],
)
def test_a_failure_of_nsys_is_incomplete_with_its_reason_after_one_more_try(run_capture, nsys_manner, code, reason):
    result = run_capture(nsys_manner)
    assert (result["status"], result["reason_code"]) == ("incomplete", code)
    assert reason in result["reason"]
    assert result["facts"]["attempts"] == 2
    with closing(sqlite3.connect("results/capture.sqlite")) as database:
        assert database.execute("SELECT * FROM CAPTURE_STATUS").fetchall() == [("incomplete", result["reason"])]


CANARIES = ("gpu-node-17", "anna", "s3cr3t", "/home", "my models", "secret run")  # what the fakes print, and is private


@pytest.mark.parametrize("manner", ["writes half", "exports half", "lacks a right", "cannot run"])
def test_what_nsys_says_when_it_fails_stays_in_the_log(run_capture, manner):
    result = json.dumps(run_capture(manner))
    for canary in (*CANARIES, str(run_capture.folder), "libexample"):
        assert canary not in result
    names_the_user = manner in ("writes half", "lacks a right")
    assert ("anna" in Path("capture.log").read_text()) == names_the_user


@pytest.mark.parametrize("severity", [2, 3])
def test_what_nsys_notes_in_its_report_is_told_by_a_code(run_capture, severity):
    text = "Failed to reach daemon of anna on gpu-node-17 with NGC_API_KEY=s3cr3t from '/home/anna/my models'"
    report = complete_capture().diagnostic(severity, text)
    result = json.dumps(run_capture(report=report))
    assert not any(canary in result for canary in CANARIES)
    assert ("nsys_error" in result) == (severity == 3)


def test_an_nsys_that_is_killed_is_incomplete(run_capture):
    reason = run_capture("is killed")["reason"]
    assert re.match(r"nsys (was killed by SIGKILL|ended with exit status 137 \(SIGKILL\)) and wrote no report", reason)


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (without_kernels, "no kernel was recorded"),
        (without_ranges, "no NVTX range was recorded"),
        (one_step_short, "found 1 ranges 'step', expected 2"),
        (impossible, "end before they start"),
    ],
)
def test_a_report_that_lacks_something_is_incomplete(run_capture, report, reason):
    result = run_capture(report=report())
    assert (result["status"], result["facts"]["attempts"]) == ("incomplete", 2)
    assert reason in result["reason"]


def test_an_nsys_that_is_missing_is_incomplete_and_says_how_to_get_it(run_capture, monkeypatch):
    monkeypatch.setenv("PATH", str(run_capture.folder))
    result = run_capture()
    assert (result["status"], result["program"]) == ("incomplete", None)
    assert "there is no nsys on PATH; install Nsight Systems" in result["reason"]


def test_a_second_try_that_succeeds_is_complete(run_capture):
    result = run_capture("fails the first time")
    assert (result["status"], result["facts"]["attempts"]) == ("complete", 2)


def test_exit_status_143_with_a_whole_report_is_complete(run_capture):
    assert run_capture("ends with 143")["status"] == "complete"


def test_an_nsys_that_hangs_before_the_program_is_ended_at_the_limit(run_capture):
    result = run_capture("hangs before the program", time_limit_s=0.7)
    assert result["reason"] == "killed at the time limit of 0.7 s, before the program had written its result"
    assert result["facts"]["attempts"] == 2


def test_an_nsys_that_hangs_after_the_program_is_ended_at_the_limit(run_capture):
    result = run_capture("hangs after the program", time_limit_s=1.5)
    assert "nsys hung and was killed at the time limit of 1.5 s and wrote no report" in result["reason"]


def test_a_hanging_program_is_ended_with_nsys_and_its_agent(run_capture, without_namespaces, monkeypatch):
    monkeypatch.setattr(capture, "CAPTURE", replace(CAPTURE, attempts=1))
    result = run_capture("leaves an agent", "hangs", time_limit_s=1.5)
    assert result["status"] == "incomplete" and "killed at the time limit of 1.5 s" in result["reason"]
    assert not is_alive(int((run_capture.nsys_folder / "agent").read_text()))
    assert not is_alive(int((run_capture.folder / "pid").read_text()))


def test_a_crash_of_the_program_is_no_result_and_is_not_tried_again(run_capture):
    with pytest.raises(ProgramFailed) as raised:
        run_capture(program_manner="crashes")
    assert "capture of tiny_ctx8_forward (nsys) ended with exit status 1" in str(raised.value)
    assert "  | RuntimeError: a defect of the model" in str(raised.value)
    assert str(raised.value).endswith("complete log: capture.log")
    assert Path("runs").read_text().splitlines() == ["nsys"]


def test_a_crash_under_the_torch_profiler_is_no_result_either(run_capture):
    with pytest.raises(ProgramFailed, match="a defect of the model"):
        run_capture(program_manner="crashes", backend="torch")
    assert Path("runs").read_text().splitlines() == ["torch"]


def test_out_of_memory_is_a_result_at_the_first_attempt_and_asks_for_no_report(run_capture):
    result = run_capture("writes nothing", "runs out of memory")
    assert (result["status"], result["reason"], result["facts"]["attempts"]) == ("out_of_memory", None, 1)


def test_the_log_of_an_earlier_attempt_is_not_taken_for_a_crash_of_this_one(run_capture):
    Path("capture.log").write_text("Traceback (most recent call last):\n")
    assert run_capture("lacks a right")["status"] == "incomplete"


def test_under_nsys_the_program_sees_listed_variables_and_no_path_of_the_project(run_capture, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "canary")
    monkeypatch.setenv("MY_SETTING", "seven")
    variables = run_capture(program_manner="shows its environment", environment=["MY_SETTING"])["program"][
        "environment"
    ]
    assert variables["MY_SETTING"] == "seven"
    assert "SECRET_TOKEN" not in variables
    assert str(run_capture.folder) not in json.dumps(variables)


def test_the_command_line_that_nsys_sees_holds_no_path_of_the_project(run_capture):
    run_capture()
    line = (run_capture.nsys_folder / "profiles").read_text()
    assert "--trace=cuda,nvtx" in line
    assert str(run_capture.folder) not in line
    assert sys.prefix not in line or sys.prefix == "/usr"


@pytest.fixture
def under_real_nsys(tmp_path, monkeypatch):
    """A hanging program under the nsys of this machine: the future of its capture, and the ids of its processes."""
    if nsys.find() is None:
        pytest.skip("there is no nsys on PATH")
    monkeypatch.setenv("PYTHONPATH", f"{FAKES}{os.pathsep}{ROOT}")
    monkeypatch.setattr(measured_program, "BENCHMARK", "fake_program")
    monkeypatch.chdir(tmp_path)
    Path("program").write_text("hangs")
    for name in ("runs", "pid"):
        Path(name).touch()
    Path("trial").mkdir()
    log, earlier_processes = Path("capture.log"), set(descendants(os.getpid()))
    with ThreadPoolExecutor(1) as pool:
        specification = SPECIFICATION | {"program": PROGRAM | {"device": "cpu"}}
        capturing = pool.submit(nsys_attempt, Job(specification, Path(), Path(), log, 6.0, Leases()), Path("trial"), 1)
        assert wait_until(lambda: log.exists() and "fake program: hangs" in log.read_text())
        yield capturing, set(descendants(os.getpid())) - earlier_processes


def wait_until(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def command_line(pid):
    return (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")


def test_a_program_that_hangs_under_the_real_nsys_ends_at_the_limit_with_every_process_of_nsys(under_real_nsys):
    capturing, processes = under_real_nsys
    assert any(b"--start-agent" in command_line(pid) for pid in processes)
    assert (
        str(capturing.result().problem) == "killed at the time limit of 6 s, before the program had written its result"
    )
    assert not any(is_alive(pid) for pid in processes)


def test_kill_9_of_the_real_nsys_ends_its_program_and_is_a_reason(under_real_nsys):
    capturing, processes = under_real_nsys
    (profiler,) = [pid for pid in processes if command_line(pid)[:2] == [b"nsys", b"profile"]]
    os.kill(profiler, signal.SIGKILL)
    problem = str(capturing.result().problem)
    assert "SIGKILL" in problem
    assert "before the program had written its result" in problem
    assert not any(is_alive(pid) for pid in processes)
