"""Programs that ask for their GPU when they have imported everything. They are real processes; GPUs are only names."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cs336_model.arguments import PROJECT_ARGUMENTS
from profile_grid.host.leases import lease_server
from profile_grid.host.leases.gpu_leases import Lease, RequestWithdrawn, acquire_lease
from profile_grid.host.leases.host_locks import FOLDER_VARIABLE, HostLock, LeaseError
from profile_grid.host.leases.lease_server import Leases, leases_for
from profile_grid.host.processes.job import Job
from profile_grid.stages.timing.measure import measure as measure_timing
from tests.default_values import DEFAULT_VALUES

ROOT = Path(__file__).parents[3]
PROGRAM = """
import os, sys, time
from pathlib import Path
from cs336_model.program.lease import give_back_lease, take_lease
print("asks", flush=True)
gpus = take_lease(Path(sys.argv[1]))
print("has", *gpus, os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
for line in sys.stdin:
    give_back_lease()
    print("gave back", flush=True)
"""
JOB = """
import subprocess, sys
from profile_grid.host.leases import lease_server
lease_server.gpu_is_visible, lease_server.visible_gpus = lambda: True, lambda: ["GPU-a"]
with lease_server.leases_for("auto", "the other job", say=print) as leases:
    program = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(leases.address)], stdin=subprocess.PIPE)
    print(program.pid, flush=True)
    program.wait()
"""


@pytest.fixture(autouse=True)
def gpus(tmp_path, monkeypatch):
    """The GPUs that this host seems to have: GPU-a alone, until a test names others."""
    names = ["GPU-a"]
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "leases"))
    monkeypatch.setattr(lease_server, "gpu_is_visible", lambda: True)
    monkeypatch.setattr(lease_server, "visible_gpus", lambda: names)
    monkeypatch.setattr(lease_server, "NEIGHBOUR_POLL_MS", 10)
    return names


@contextmanager
def asking_program(leases):
    """A program that asks for its GPU; it ends with the with block."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(leases.address)], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "asks\n"
        yield process
        process.kill()


def give_back(process):
    """Makes the program return its lease, and returns what it prints then."""
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def is_leased(gpu):
    with HostLock(gpu) as lock:
        return not lock.try_lock()


def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_program_has_the_gpu_that_it_asked_for_until_it_is_gone_and_sees_no_other(gpus):
    gpus += ["GPU-b"]
    seen_leases = []
    with leases_for("auto", "a run", say=print, on_lease=seen_leases.append) as leases:
        assert not is_leased("GPU-a")  # while it imports, somebody else may have it
        with asking_program(leases) as first:
            assert first.stdout.readline() == "has GPU-a GPU-a\n"
            assert is_leased("GPU-a")
            assert [lease.gpus for lease in seen_leases] == [("GPU-a",)]
        wait_until(lambda: not is_leased("GPU-a"))
    assert leases.held_s > 0


def test_a_program_that_gave_its_lease_back_goes_on_while_another_has_the_gpu():
    with (
        leases_for("auto", "this", say=print) as these,
        leases_for("auto", "that", say=print) as those,
        asking_program(these) as first,
        asking_program(those) as second,
    ):
        assert {first.stdout.readline(), give_back(first)} == {"has GPU-a GPU-a\n", "gave back\n"}
        assert second.stdout.readline() == "has GPU-a GPU-a\n"
        assert is_leased("GPU-a")
        assert (these.were_alone(), those.were_alone()) == (True, False)


def test_who_needs_all_memory_waits_for_the_process_that_gave_its_lease_back():
    messages = []
    with (
        leases_for("auto", "this", say=print) as these,
        leases_for("auto", "that", say=messages.append) as those,
        asking_program(these) as first,
    ):
        assert first.stdout.readline() == "has GPU-a GPU-a\n"
        give_back(first)
        those.must_be_alone = True
        with asking_program(those) as second:
            wait_until(lambda: messages)
            assert those.acquired_leases == []
            first.kill()
            assert second.stdout.readline() == "has GPU-a GPU-a\n"
            assert those.were_alone()
    assert "that waits for GPU GPU-a: a measurement that is over, whose process ends" in messages[0]


def test_a_killed_program_that_gave_its_lease_back_leaves_nothing_behind():
    with leases_for("auto", "this", say=print) as leases, asking_program(leases) as first:
        assert first.stdout.readline() == "has GPU-a GPU-a\n"
        give_back(first)
        first.kill()
        first.wait()
        with acquire_lease(["GPU-a"], 1, "the next", must_be_alone=True) as lease:
            assert lease.is_alone


def test_a_second_program_of_a_job_asks_again(gpus):
    with leases_for("auto", "a run", say=print) as leases:
        for _ in range(2):
            with asking_program(leases) as process:
                assert process.stdout.readline() == "has GPU-a GPU-a\n"
    assert len(leases.acquired_leases) == 2


def test_of_two_jobs_one_waits_until_the_program_of_the_other_is_gone():
    messages = []
    with (
        leases_for("auto", "this", say=print) as these,
        leases_for("auto", "that", say=messages.append) as those,
        asking_program(these) as first,
    ):
        assert first.stdout.readline() == "has GPU-a GPU-a\n"
        with asking_program(those) as second:
            wait_until(lambda: messages)
            assert those.waited_s() > 0
            assert those.acquired_leases == []
            first.kill()
            assert second.stdout.readline() == "has GPU-a GPU-a\n"
    assert "that waits for GPU GPU-a: this (process" in messages[0]


def test_two_gpus_serve_two_jobs_at_once_and_each_counts_the_other_as_a_neighbour(gpus):
    gpus += ["GPU-b"]
    with (
        leases_for("auto", "this", say=print) as these,
        leases_for("auto", "that", say=print) as those,
        asking_program(these) as first,
        asking_program(those) as second,
    ):
        assert {first.stdout.readline(), second.stdout.readline()} == {"has GPU-a GPU-a\n", "has GPU-b GPU-b\n"}
        wait_until(lambda: these.max_neighbours == those.max_neighbours == 1)


def test_a_quiet_host_is_waited_for_where_it_is_wanted(gpus):
    gpus += ["GPU-b"]
    messages = []
    with (
        leases_for("auto", "this", say=print) as these,
        leases_for("auto", "that", quiet_host=True, say=messages.append) as those,
        asking_program(these) as first,
    ):
        assert first.stdout.readline() == "has GPU-a GPU-a\n"
        with asking_program(those) as second:
            wait_until(lambda: messages)
            first.kill()
            assert second.stdout.readline() in {"has GPU-a GPU-a\n", "has GPU-b GPU-b\n"}
    assert (these.max_neighbours, those.max_neighbours) == (0, 0)
    assert "that waits for this host" in messages[0]


def test_a_program_that_ends_while_it_waits_leases_nothing():
    messages = []
    with leases_for("auto", "this", say=messages.append) as leases, HostLock("GPU-a") as lock:
        assert lock.try_lock()
        with asking_program(leases):
            wait_until(lambda: messages)
        wait_until(lambda: leases._waiting_since_s is None)
    assert leases.acquired_leases == []


def test_a_killed_jobs_program_keeps_its_gpu_until_it_is_gone_too():
    with subprocess.Popen(
        [sys.executable, "-c", JOB, PROGRAM], cwd=ROOT, text=True, stdout=subprocess.PIPE, stdin=subprocess.PIPE
    ) as job:
        lines = [job.stdout.readline() for _ in range(3)]  # in any order: asks, has its GPU, the program's id
        pid = next(int(line) for line in lines if line.strip().isdigit())
        assert "has GPU-a GPU-a\n" in lines
        os.kill(pid, signal.SIGSTOP)
        job.kill()
        job.wait()
        assert is_leased("GPU-a")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_leased("GPU-a"))


def test_a_job_that_can_have_no_gpu_says_why_and_so_does_each_of_its_programs(gpus, monkeypatch):
    gpus.clear()
    both_ask = threading.Event()

    def acquire_when_both_ask(*arguments, **options):
        both_ask.wait(10)
        return acquire_lease(*arguments, **options)

    monkeypatch.setattr(lease_server, "acquire_lease", acquire_when_both_ask)
    with (
        pytest.raises(LeaseError, match="a run needs 1 GPUs and can see 0"),
        leases_for("auto", "a run", say=print) as leases,
        asking_program(leases) as first,
        asking_program(leases) as second,
    ):
        time.sleep(0.2)  # to connect
        both_ask.set()
        for process in (first, second):
            assert "no lease of a GPU was given" in process.stderr.read()
        with asking_program(leases) as third:
            assert "no lease of a GPU was given" in third.stderr.read()


@pytest.mark.parametrize(("device", "visible"), [("cpu", True), ("auto", False)])
def test_on_the_processor_the_lease_of_the_host_spans_the_whole_job(monkeypatch, device, visible):
    monkeypatch.setattr(lease_server, "gpu_is_visible", lambda: visible)
    seen_leases = []
    with leases_for(device, "a run", say=print, on_lease=seen_leases.append) as leases:
        assert leases.address is None
        assert len(seen_leases) == 1
        assert is_leased("host")
    assert leases.held_s > 0


def test_the_measured_program_asks_for_its_gpu_and_its_waiting_is_told_apart(tmp_path):
    sizes = {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32, "rope_theta": 1e4}
    values = {"model": "m", "context_length": 8, "mode": "forward", "batch_size": 1, **DEFAULT_VALUES}
    program = {
        "run": "m", "constructor": "cs336_model.model:TransformerLM", "sizes": sizes,
        "dimensions": values, "vocab_size": 64, "device": "auto", "seed": 0, "warmup_steps": 1, "measured_steps": 1,
        "config": None, "arguments": PROJECT_ARGUMENTS, "annotate": {}, "replace": {},
    }  # fmt: skip
    specification, held_gpu = {"program": program, "environment": []}, ExitStack()
    (tmp_path / "scratch").mkdir()
    assert held_gpu.enter_context(HostLock("GPU-a")).try_lock()
    with held_gpu, leases_for("auto", "a run", say=lambda line: held_gpu.close()) as leases:
        result = measure_timing(Job(specification, tmp_path, tmp_path / "scratch", tmp_path / "log", 60.0, leases))
    assert result["program"]["cost_seconds"]["wait"] > 0
    assert leases.waited_s() > 0


def test_the_processes_of_a_run_have_their_gpus_together_or_not_at_all(gpus):
    gpus += ["GPU-b"]
    with leases_for("auto", "two", 2, say=print) as leases, asking_program(leases) as first, ExitStack() as elsewhere:
        assert elsewhere.enter_context(HostLock("GPU-b")).try_lock()
        with asking_program(leases) as second:
            wait_until(lambda: leases.waited_s() > 0)
            assert leases.acquired_leases == []  # one GPU is free, and that is not enough
            elsewhere.close()
            assert [process.stdout.readline() for process in (first, second)] == ["has GPU-a GPU-b GPU-a,GPU-b\n"] * 2
            first.kill()
            first.wait()
            assert is_leased("GPU-a")  # the other process of the run lives
        wait_until(lambda: not is_leased("GPU-a"))


def test_a_process_whose_peer_is_gone_before_both_asked_is_forgotten(gpus):
    gpus += ["GPU-b"]
    with leases_for("auto", "two", 2, say=print) as leases:
        with asking_program(leases) as gone:
            gone.kill()
        with asking_program(leases) as first, asking_program(leases) as second:
            assert [process.stdout.readline() for process in (first, second)] == ["has GPU-a GPU-b GPU-a,GPU-b\n"] * 2


def test_seconds_that_were_waited_in_vain_are_counted_and_one_lease_beside_others_is_not_alone():
    leases, is_wanted = Leases(), iter([True, False])
    with HostLock("GPU-a") as lock:
        lock.try_lock()
        with (
            pytest.raises(RequestWithdrawn),
            leases.acquire(["GPU-a"], 1, "x", is_wanted=lambda: next(is_wanted), say=lambda line: None),
        ):
            pass
    assert 0.04 < leases.waited_s() < 5
    leases.acquired_leases = [Lease((), 0.0, (), is_alone=False), Lease((), 0.0, ())]
    assert not leases.were_alone()
    leases.acquired_leases.pop(0)
    assert leases.were_alone()
