"""Nothing of ours runs beside a measured step. Threads stand for processes: each opens the files for itself."""

import os
import signal
import stat
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cs336_model import locks
from cs336_model.locks import HOST, exclusive, shared

GPUS = ["GPU-a", "GPU-b", "GPU-c"]
SOON_S = 0.15


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "locks"


@pytest.fixture
def gpus(monkeypatch):
    """A host with three GPUs."""
    monkeypatch.setattr(locks, "host_gpus", lambda: GPUS)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def start():
    """A function that begins a call in another thread."""
    pool = ThreadPoolExecutor(8)
    yield pool.submit
    pool.shutdown(wait=False)


def waits(future) -> bool:
    """Whether the call still waits after a while."""
    time.sleep(SOON_S)
    return not future.done()


def test_nobody_who_comes_later_overtakes_a_measurement_that_waits(folder, start):
    first = shared(folder)
    alone = start(exclusive, folder)
    assert waits(alone)
    later = start(shared, folder)
    going_on = start(shared, folder, turnstile=False).result(5)  # with what another shares
    first.release()
    assert waits(later) and not alone.done()
    going_on.release()
    with alone.result(5):
        assert waits(later)
    later.result(5).release()


def test_a_measurement_takes_any_free_gpu_and_others_measure_beside_it(folder, gpus, start):
    held = [exclusive(folder, GPUS) for _ in range(3)]
    assert sorted(one.names[0] for one in held) == GPUS
    fourth, sharing = start(exclusive, folder, GPUS), start(shared, folder)
    assert waits(fourth)
    held[1].release()
    with fourth.result(5) as taken:
        assert taken.names == held[1].names
        on_cpu = start(exclusive, folder, [HOST])
        assert waits(on_cpu) and not sharing.done(), "who shares, shares the locks of all GPUs"
        for one in held:
            one.release()
    with on_cpu.result(5):
        on_gpu = start(exclusive, folder, GPUS)
        assert waits(on_gpu)
    on_gpu.result(5).release()
    sharing.result(5).release()


def test_several_gpus_are_taken_together_or_not_at_all(folder, gpus, start):
    with exclusive(folder, ["GPU-b"]):
        both = start(exclusive, folder, ["GPU-b", "GPU-a"], 2)
        assert waits(both)
    with both.result(5) as held:
        assert held.names == ("GPU-a", "GPU-b")
        assert start(exclusive, folder, GPUS).result(5).names == ("GPU-c",)


def start_holder(take, folder: Path, user: int) -> int:
    """The number of a process of a user that has the locks when this function returns, until it is ended."""
    has, says = os.pipe()
    if process := os.fork():
        os.close(says)
        assert os.read(has, 3) == b"has"
        os.close(has)
        return process
    try:  # in the child
        if user:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        held = take(folder)
        os.write(says, b"has")
        time.sleep(60)
        held.release()
    finally:
        os._exit(1)


@pytest.mark.parametrize("user", [0, 65534])
def test_any_user_can_use_the_locks_whatever_the_umask_and_a_lock_ends_with_its_process(start, user):
    if user and os.geteuid():
        pytest.skip("only root can be another user")
    before = os.umask(0o077)
    try:
        with tempfile.TemporaryDirectory() as parent:
            os.chmod(parent, 0o755)
            folder = Path(parent, "locks")
            with shared(folder):
                assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
                assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o666}
                holder = start_holder(shared, folder, user)
            alone = start(exclusive, folder)
            assert waits(alone)
            os.kill(holder, signal.SIGKILL)
            os.waitpid(holder, 0)
            alone.result(5).release()
    finally:
        os.umask(before)


def test_gpus_of_the_host_are_those_that_this_process_may_open_or_that_nvidia_smi_lists(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "NVIDIA", tmp_path)
    monkeypatch.setattr(locks, "DEVICES", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho GPU-4, NVIDIA L4\necho GPU-5, NVIDIA T4\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    locks.host_gpus.cache_clear()
    assert locks.host_gpus() == {"GPU-4": "NVIDIA L4", "GPU-5": "NVIDIA T4"}
    for bus, (uuid, minor) in {"0000:02": ("GPU-2", 0), "0000:01": ("GPU-1", 1), "0000:03": ("GPU-3", 2)}.items():
        (tmp_path / bus).mkdir()
        text = f"Model: \t\t NVIDIA H200\nGPU UUID: \t {uuid}\nVideo BIOS: \t ??\nDevice Minor: \t {minor}\n"
        (tmp_path / bus / "information").write_text(text)
    for minor in (0, 1):
        (tmp_path / f"nvidia{minor}").touch()
    locks.host_gpus.cache_clear()
    assert list(locks.host_gpus()) == ["GPU-1", "GPU-2"]
    locks.host_gpus.cache_clear()


@pytest.mark.parametrize(
    ("variable", "visible"),
    [
        ("", []), ("2, 0", ["GPU-c", "GPU-a"]), ("GPU-c", ["GPU-c"]), ("1,1", ["GPU-b"]), ("0,9,1", ["GPU-a"]),
        ("-1", []), ("MIG-7", ["MIG-7"]),
    ],
)  # fmt: skip
def test_visible_gpus_are_those_that_cuda_would_show(gpus, monkeypatch, variable, visible):
    assert locks.visible_gpus() == GPUS
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert locks.visible_gpus() == visible
