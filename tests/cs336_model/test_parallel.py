"""Runs of several processes: how the parent treats its ranks (made-up ones, without torch); real ranks over Gloo."""

import argparse
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import torch

import kernel_tables
from cs336_model import __main__ as program
from cs336_model import launch, locks, variants
from cs336_model.benchmark import Subject
from cs336_model.results import read_result
from cs336_model.spec import Spec
from kernel_tables.ranks import collectives, ranks_of
from tests.cs336_model.conftest import make_spec

SPEC = make_spec(batch_size=4, gpus=2, parallel="ddp", measured_steps=3)
RANK = """
import fcntl, os, sys, time
from pathlib import Path
from cs336_model.results import Timing, write_result
rank, told = int((sys.argv[1] or "_rank0")[5:]), dict(zip(sys.argv, sys.argv[1:]))
meeting, output = Path(told["--meeting"]), Path(told["--output"])
def wait(name):
    while not (meeting / name).exists():
        time.sleep(0.005)
def lock(kind):
    with open(sys.argv[2]) as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
def say_lock():
    with open(os.environ["SAID"], "a") as file:
        held = "alone" if not lock(fcntl.LOCK_SH) else "free" if lock(fcntl.LOCK_EX) else "shared"
        file.write(f"{rank} {held} {os.getpid()}\\n")
output.with_name("ready").touch()
wait("begin")
say_lock()
result = Timing(status="complete", step_seconds=[1.0 + rank, 3.0 - rank], losses=[2.0], peak_allocated_bytes=rank)
"""
GOOD = """
output.with_name("freed").touch()
wait("end")
say_lock()
write_result(result, output)
"""
STOPPED = """
if rank:
    while len(Path(os.environ["SAID"]).read_text().splitlines()) < 2:
        time.sleep(0.005)
    result.status, result.reason = "out_of_memory", "no memory was left during warmup"
    write_result(result, output)
    os._exit(75)
time.sleep(600)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A function that runs two ranks, which do as RANK and then a text say, and returns what they said."""
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    monkeypatch.setenv("PYTHONPATH", str(Path(launch.__file__).parents[1]))
    command = [sys.executable, str(tmp_path / "rank.py"), "{rank}", str(tmp_path / "locks" / locks.HOST)]
    options = argparse.Namespace(
        output=tmp_path / "timing.json", locks=tmp_path / "locks", profiler="none", capture=None, rank_command=command
    )

    def run_with(text: str, spec: Spec = SPEC) -> list[list[str]]:
        (tmp_path / "rank.py").write_text(RANK + text)
        launch.run_ranks(spec, options)
        said = tmp_path / "said"
        return [line.split() for line in said.read_text().splitlines()] if said.exists() else []

    return run_with


def test_ranks_begin_when_the_parent_is_alone_and_the_slowest_of_each_step_counts(run, tmp_path):
    said = run(GOOD)
    for rank in "01":
        assert [held for number, held, _ in said if number == rank] == ["alone", "shared"]
    result = read_result(tmp_path / "timing.json")
    assert (result.status, result.step_seconds, result.peak_allocated_bytes) == ("complete", [2.0, 3.0], 1)
    assert not (tmp_path / "started").exists()


def test_out_of_memory_of_one_rank_is_the_result_and_ends_the_others(run, tmp_path):
    said = run(STOPPED)
    result = read_result(tmp_path / "timing.json")
    assert (result.status, result.reason) == ("out_of_memory", "no memory was left during warmup")
    assert len(said) == 2 and not any(Path("/proc", process).exists() for _, _, process in said)


@pytest.mark.parametrize("text", ["sys.exit(3 if rank else time.sleep(600))", GOOD + "os._exit(3 if rank else 0)"])
def test_a_rank_that_crashes_leaves_no_result(run, tmp_path, text):
    with pytest.raises(SystemExit) as ended:
        run(text)
    assert ended.value.code == 3 and not (tmp_path / "timing.json").exists()


def test_fewer_gpus_than_asked_for_are_unsupported(run, tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "visible_gpus", lambda: ["GPU-1"])
    run("", msgspec.structs.replace(SPEC, device="auto"))
    result = read_result(tmp_path / "timing.json")
    assert result.status == "unsupported" and "gpus is 2, and 1 are visible" in result.reason


@pytest.fixture(scope="module")
def losses_alone() -> list[float]:
    subject = Subject(msgspec.structs.replace(SPEC, gpus=1, parallel="none"), torch.device("cpu"))
    subject.run_steps("measure", SPEC.warmup_steps + SPEC.measured_steps)
    return subject.read_losses()


def test_a_run_of_several_processes_trains_as_one_does_and_times_steps_without_communication(tmp_path, losses_alone):
    spec = msgspec.json.encode(msgspec.structs.replace(SPEC, parallel="naive")).decode()
    command = [sys.executable, "-m", "cs336_model", "--spec", spec, "--output", tmp_path / "timing.json"]
    root = Path(launch.__file__).parents[1]
    subprocess.run([*command, "--locks", tmp_path / "locks"], cwd=root, check=True, capture_output=True)
    result = read_result(tmp_path / "timing.json")
    assert result.losses[: len(losses_alone)] == pytest.approx(losses_alone, rel=1e-5)
    assert len(result.step_seconds) == 3 and len(result.without_communication_seconds) == 2


def capture_ranks(folder: Path, way: str) -> list[Path]:
    """The captures of two ranks, which are forked from this process: to import PyTorch takes seconds."""
    spec = msgspec.structs.replace(SPEC, parallel=way, stage="capture")
    variants.import_late_modules(spec)
    (folder / "begin").write_text("[]")
    (folder / "end").touch()
    processes = []
    for rank in range(2):
        (folder / f"rank{rank}").mkdir()
        told = ["--spec", msgspec.json.encode(spec).decode(), "--output", folder / f"rank{rank}" / "capture.json"]
        told += ["--rank", rank, "--meeting", folder, "--profiler", "torch", "--capture", folder / f"{rank}.sqlite"]
        if not (process := os.fork()):
            with suppress(BaseException):
                program.main([str(word) for word in told])
            os._exit(0)
        processes.append(process)
    for process in processes:
        os.waitpid(process, 0)
    return [folder / f"{rank}.sqlite" for rank in range(2)]


@pytest.mark.parametrize("way", ["naive", "ddp", "fsdp"])
def test_captures_of_ranks_name_operations_and_bytes(tmp_path, monkeypatch, losses_alone, way):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    captures = capture_ranks(tmp_path, way)
    result = read_result(tmp_path / "rank0" / "capture.json")
    assert result.losses == pytest.approx(losses_alone, rel=1e-5)
    with kernel_tables.read(captures[0]) as first, kernel_tables.read(captures[1]) as second:
        calls = collectives(ranks_of([first, second])).query("step == 2")
        names = set(first.ranges()["range"])
    assert set(calls["rank"]) == {0, 1}
    sums = calls[calls["rank"] == 1].groupby("operation")["bytes"].sum()
    assert sums["all-reduce"] == 4 * result.parameters  # of fsdp, too: Gloo scatters by an all-reduce
    assert ("all-gather" in sums) == (way == "fsdp")
    assert ("all-reduce, bucket = 0" in names) == (way == "ddp")
