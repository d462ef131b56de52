"""A measurement on two GPUs of which one process is killed at any moment: nothing of it stays, and the next one runs.

The processes are those of a real job: the job, its supervisor, the launcher, two ranks; a rank alone is a stand-in
without PyTorch, and the GPUs are names. (That of Snakemake itself: tests/workflow/test_failures.py.)
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profile_grid.host.leases.host_locks import FOLDER_VARIABLE, HostLock
from tests.profile_grid.test_ranks import PROGRAM

ROOT = Path(__file__).parents[2]
JOB = """
from profile_grid.host.leases import lease_server
from profile_grid.host.processes import measured_program
lease_server.gpu_is_visible, lease_server.visible_gpus = (lambda: True), (lambda: ["GPU-a", "GPU-b"])
measured_program.BENCHMARK = "tests.profile_grid.light_rank"
from workflow.command import options_of
from workflow.scripts.measure import main
main(**options_of(main))
"""
VICTIMS = ("job", "supervisor", "launcher", "rank")  # each is the parent of the next
RANDOM = random.Random(11)
MOMENTS = [RANDOM.random() for _ in VICTIMS for _ in range(2)]
PATIENCE_S = 20


def started(folder: Path) -> subprocess.Popen:
    """The job; what it leases is in a folder below."""
    told = {"program": PROGRAM | {"device": "auto"}, "environment": [], "quiet_host": False}
    command = [
        sys.executable, "-c", JOB, "--stage", "timing", "--specification", json.dumps(told), "--sources", "x",
        "--output", str(folder / "results/runs/tiny/timing.json"), "--log", str(folder / "log"), "--time-limit-s", "60",
    ]  # fmt: skip
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)


def children(pid: int) -> list[int]:
    try:
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def found(job: subprocess.Popen, victim: str) -> int | None:
    """The process of this part, once it is there; None where the job ended before."""
    while job.poll() is None:
        of_level = [job.pid]
        for _ in range(VICTIMS.index(victim)):
            of_level = [child for pid in of_level for child in children(pid)]
        if of_level:
            return of_level[-1]
        time.sleep(0.005)
    return None


def left(folder: Path) -> list[str]:
    """The processes that have this folder in their command lines."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes())  # of one that has ended and is not reaped it is empty
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [line.replace(b"\0", b" ").decode() for line in lines if str(folder).encode() in line]


def wait_until(is_so) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_free(name: str) -> bool:
    with HostLock(name) as lock:
        return lock.try_lock()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Seconds of a job that nobody disturbs."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("whole")
        patch.setenv(FOLDER_VARIABLE, str(folder / "leases"))
        began = time.monotonic()
        assert started(folder).wait(PATIENCE_S) == 0
        return time.monotonic() - began


@pytest.mark.parametrize(("victim", "moment"), list(zip(VICTIMS * 2, MOMENTS, strict=True)))
def test_killed_at_any_moment_nothing_stays_and_no_result_is_half(tmp_path, monkeypatch, whole, victim, moment):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "leases"))
    job = started(tmp_path)
    time.sleep(moment * whole)
    if pid := found(job, victim):
        os.kill(pid, signal.SIGKILL)
    status = job.wait(PATIENCE_S)
    wait_until(lambda: left(tmp_path) == [])
    wait_until(lambda: all(is_free(name) for name in ("GPU-a", "GPU-b", "host")))
    result = tmp_path / "results/runs/tiny/timing.json"
    assert result.exists() == (status == 0)
    if status == 0:
        assert json.loads(result.read_text())["status"] == "complete"


def test_after_a_kill_the_next_job_runs_and_leaves_its_result_alone(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "leases"))
    job = started(tmp_path)
    os.kill(found(job, "rank"), signal.SIGKILL)
    assert job.wait(PATIENCE_S) != 0
    assert started(tmp_path).wait(PATIENCE_S) == 0
    run = tmp_path / "results/runs/tiny"
    assert [path.name for path in run.iterdir()] == ["timing.json"]
    assert len(json.loads((run / "timing.json").read_text())["facts"]["ranks"]) == 2
