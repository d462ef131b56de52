"""Who may measure while others on this host do. The others are processes of their own that hold a lease."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from profile_grid.host import gpu_check
from profile_grid.host.leases import gpu_leases as leases
from profile_grid.host.leases.gpu_leases import PRESENCE_LOCK, TICKET_PREFIX, acquire_lease, new_ticket
from profile_grid.host.leases.host_locks import FOLDER_VARIABLE, HostLock, LeaseError, held_gpus, lock_names

ROOT = Path(__file__).parents[3]
HOLDER = """
import sys
from profile_grid.host.leases.gpu_leases import acquire_lease
pool, count, whole_host, action = sys.argv[1].split(), int(sys.argv[2]), sys.argv[3] == "whole", sys.argv[4]
with acquire_lease(pool, count, "the holder", whole_host=whole_host) as lease:
    print("has", *lease.gpus, flush=True)
    if action == "run":
        from pathlib import Path
        from profile_grid.host.leases.lease_server import Leases
        from profile_grid.host.processes.programs import run_program
        leases, environment = Leases(lock_descriptors=lease.lock_descriptors), {"PATH": "/usr/bin:/bin"}
        run_program(["sleep", "60"], environment=environment, log=Path("/dev/null"), time_limit_s=60, leases=leases)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "leases"))
    return tmp_path / "leases"


@contextmanager
def held(*gpus, count=None, whole_host=False, action="wait"):
    """Another process that holds a lease of `count` of these GPUs (None: of all) until the with block ends. With the
    action "run", it also runs a program."""
    arguments = [" ".join(gpus), str(len(gpus) if count is None else count), "whole" if whole_host else "", action]
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, *arguments], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline().split()[0] == "has"
        yield holder
        holder.stdin.close()


class Waited(Exception):
    pass


def refuse(line):
    """Given to acquire_lease as `say`: raises instead of waiting."""
    raise Waited(line)


def leased_at_once(pool=(), count=0, whole_host=False):
    """The GPUs that are leased without waiting; None if that is not possible."""
    try:
        with acquire_lease(pool, count, "this test", whole_host=whole_host, say=refuse) as lease:
            return lease.gpus
    except Waited:
        return None


def test_a_leased_gpu_is_not_leased_again_and_another_one_is():
    with held("GPU-a"):
        assert leased_at_once(["GPU-a"], 1) is None
        assert leased_at_once(["GPU-b"], 1) == ("GPU-b",)
        assert leased_at_once(["GPU-a", "GPU-b"], 1) == ("GPU-b",)
    assert leased_at_once(["GPU-a"], 1)


def test_several_gpus_are_leased_all_or_none():
    with held("GPU-b"):
        assert leased_at_once(["GPU-a", "GPU-b"], 2) is None
        assert leased_at_once(["GPU-a"], 1)  # the one that was free has been let go
        assert leased_at_once(["GPU-a", "GPU-b", "GPU-c"], 2) == ("GPU-a", "GPU-c")


def test_what_needs_the_whole_host_waits_for_gpus_and_they_for_it():
    with held("GPU-a"):
        assert leased_at_once(whole_host=True) is None
    with held(whole_host=True):
        assert leased_at_once(["GPU-a"], 1) is None
        assert leased_at_once(whole_host=True) is None


def test_who_waits_says_for_whom():
    with held("GPU-a") as holder, pytest.raises(Waited) as waited, acquire_lease(["GPU-a"], 1, "this test", say=refuse):
        pass
    assert f"this test waits for GPU GPU-a: the holder (process {holder.pid} of " in str(waited.value)


def test_a_lease_that_has_to_be_waited_for_is_had_once_it_is_free(monkeypatch):
    messages = []
    with held("GPU-a") as holder:
        monkeypatch.setattr(leases.time, "sleep", lambda seconds: (holder.stdin.close(), holder.wait()))
        with acquire_lease(["GPU-a"], 1, "this test", say=messages.append) as lease:
            assert lease.gpus == ("GPU-a",)
    assert len(messages) == 1


def test_who_needs_several_gpus_and_has_waited_long_is_next_for_each(monkeypatch):
    """GPU-b is given back, and another one wants it before GPU-a is free too."""
    monkeypatch.setattr(leases, "RESERVE_AFTER_S", 0.0)
    messages = []
    with held("GPU-a") as first, held("GPU-b") as second:

        def release_one_gpu(seconds):
            if second.poll() is None:
                second.stdin.close()
                second.wait()
                reserved = pytest.raises(Waited, match=r"GPU-b: this test \(process .*, which waited before")
                with reserved, acquire_lease(["GPU-b"], 1, "another", say=refuse):
                    pass
            else:
                first.stdin.close()
                first.wait()

        monkeypatch.setattr(leases.time, "sleep", release_one_gpu)
        with acquire_lease(["GPU-a", "GPU-b"], 2, "this test", say=messages.append) as lease:
            assert lease.gpus == ("GPU-a", "GPU-b")
            assert lock_names(TICKET_PREFIX) == []  # nobody waits any more


def test_who_came_first_is_served_first_and_keeps_nobody_from_what_it_does_not_want():
    with new_ticket(["GPU-a"], 1, False, "the first"):
        assert leased_at_once(["GPU-a"], 1) is None
        assert leased_at_once(["GPU-a", "GPU-b"], 1) == ("GPU-b",)
        assert leased_at_once(["GPU-b"], 1)
        assert leased_at_once(whole_host=True) == ()
        with pytest.raises(Waited, match=r"waits for GPU GPU-a: the first \(process .*, which waited before"):
            acquire_lease(["GPU-a"], 1, "this test", say=refuse).__enter__()
    assert leased_at_once(["GPU-a"], 1)


def test_who_needs_more_than_is_free_is_passed_over_until_it_has_waited_long(monkeypatch):
    with held("GPU-b"), new_ticket(["GPU-a", "GPU-b"], 2, False, "the first"):
        assert leased_at_once(["GPU-a"], 1)
        monkeypatch.setattr(leases, "RESERVE_AFTER_S", 0.0)
        assert leased_at_once(["GPU-a"], 1) is None


def test_who_needs_a_gpu_and_the_whole_host_keeps_no_gpu_from_others_before_its_time():
    with held("GPU-b"), new_ticket(["GPU-a", "GPU-b"], 1, True, "the first"):
        assert leased_at_once(["GPU-a"], 1)


def test_who_is_stopped_while_it_waits_keeps_nobody_waiting():
    with new_ticket(["GPU-a"], 1, False, "the first") as first:
        assert leased_at_once(["GPU-a"], 1) is None
        os.utime(first.path, (0, time.time() - leases.STALE_TICKET_S))
        assert leased_at_once(["GPU-a"], 1)
        first.touch()
        assert leased_at_once(["GPU-a"], 1) is None


def test_no_more_gpus_are_found_locked_by_who_looks_than_it_needs():
    with acquire_lease(["GPU-a", "GPU-b"], 1, "this test"):
        assert held_gpus() == {"GPU-a"}
    tried = []

    class RecordingLock(HostLock):
        def try_lock(self, shared=False):
            tried.append(self.name)
            return super().try_lock(shared)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases, "HostLock", RecordingLock)
        assert leased_at_once(["GPU-a", "GPU-b"], 1) == ("GPU-a",)
    assert "GPU-b" not in tried


def test_a_gpu_on_which_somebody_is_still_present_is_left_to_others_by_who_must_be_alone():
    with HostLock(PRESENCE_LOCK.format("GPU-a")) as still_present:
        assert still_present.try_lock(shared=True)
        with acquire_lease(["GPU-a", "GPU-b"], 1, "this test", must_be_alone=True) as lease:
            assert lease.gpus == ("GPU-b",)
            assert held_gpus() == {"GPU-b"}


def test_who_needs_the_whole_host_is_passed_over_by_those_on_gpus_until_it_has_waited_long(monkeypatch):
    with held("GPU-b"), new_ticket([], 0, True, "the first"):
        assert leased_at_once(["GPU-a"], 1)
        assert leased_at_once(whole_host=True) is None
        monkeypatch.setattr(leases, "RESERVE_AFTER_S", 0.0)
        assert leased_at_once(["GPU-a"], 1) is None


def test_of_many_who_wait_each_is_served_in_its_turn(tmp_path):
    """Each process asks when the one before already waits. Then the test returns the GPU, and each has it for 50 ms."""
    order = tmp_path / "order"
    program = f"""
import sys, time
from profile_grid.host.leases.gpu_leases import acquire_lease
with acquire_lease(["GPU-a"], 1, sys.argv[1], say=lambda line: print("waits", flush=True)):
    open({str(order)!r}, "a").write(sys.argv[1])
    time.sleep(0.05)
"""
    waiting = []
    with held("GPU-a"):
        for name in "abcdefgh":
            command = [sys.executable, "-c", program, name]
            waiting.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
            assert waiting[-1].stdout.readline() == "waits\n"
    for process in waiting:
        assert process.wait(30) == 0
        process.stdout.close()
    assert order.read_text() == "abcdefgh"


def test_a_place_of_a_killed_process_or_of_another_version_keeps_nobody(folder):
    assert leased_at_once(["GPU-a"], 1)
    (folder / "waiting-00000000000000000001-7").write_text('{"gpus": ["GPU-a"], "count": 1, "whole_host": true}')
    (folder / "waiting-x").touch()
    with HostLock("waiting-00000000000000000002-8") as other:
        assert other.try_lock()
        for written in ("", "[]", '{"gpus": 1}'):
            other.path.write_text(written)
            assert leased_at_once(["GPU-a"], 1)
    assert lock_names("waiting-00000000000000000001") == []


def test_a_killed_holder_has_no_lease():
    with held("GPU-a") as holder:
        holder.kill()
        holder.wait()
        assert leased_at_once(["GPU-a"], 1)


def test_a_killed_holders_lease_is_held_until_its_program_is_gone_too():
    with held("GPU-a", action="run") as holder:
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
        deadline = time.monotonic() + 20
        while not children.read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
        supervisor = int(children.read_text().split()[0])
        os.kill(supervisor, signal.SIGSTOP)
        holder.kill()
        holder.wait()
        assert leased_at_once(["GPU-a"], 1) is None
        os.kill(supervisor, signal.SIGCONT)
        with acquire_lease(["GPU-a"], 1, "this test", say=lambda line: None) as lease:
            assert lease.gpus == ("GPU-a",)


def test_more_gpus_than_can_be_seen_are_an_error_with_their_number():
    with pytest.raises(LeaseError, match=r"this test needs 2 GPUs and can see 1 \(GPU-a\)"):
        leased_at_once(["GPU-a"], 2)


def test_everybody_may_lease_whoever_leased_first(folder):
    old_umask = os.umask(0o077)
    try:
        assert leased_at_once(["GPU-a"], 1)
    finally:
        os.umask(old_umask)
    assert folder.stat().st_mode & 0o7777 == 0o1777
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o666}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_lock_that_may_only_be_read_can_be_taken_too(folder):
    assert leased_at_once(["GPU-a"], 1)
    (folder / "GPU-a").chmod(0o444)
    assert leased_at_once(["GPU-a"], 1)


@pytest.mark.parametrize("trap", ["link", "file"])
def test_a_folder_that_is_none_of_ours_is_refused_with_the_way_on(folder, tmp_path, trap):
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere") if trap == "link" else folder.touch()
    with pytest.raises(LeaseError, match=f"{FOLDER_VARIABLE}"):
        leased_at_once(["GPU-a"], 1)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_lock_that_is_a_link_is_not_followed(folder, tmp_path):
    folder.mkdir()
    (tmp_path / "precious").write_text("precious")
    (folder / "GPU-a").symlink_to(tmp_path / "precious")
    with pytest.raises(LeaseError, match="cannot lock"):
        leased_at_once(["GPU-a"], 1)
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_lock_whose_file_was_removed_and_made_again_is_not_held_twice(folder):
    with HostLock("GPU-a") as first:
        (folder / "GPU-a").unlink()
        with HostLock("GPU-a") as second:
            assert second.try_lock()
            assert not first.try_lock()


@pytest.mark.parametrize(
    ("variable", "seen"),
    [
        (None, ["GPU-6b83", "GPU-77aa"]),
        ("1", ["GPU-77aa"]),
        ("1,0", ["GPU-77aa", "GPU-6b83"]),
        ("GPU-7", ["GPU-77aa"]),
        ("MIG-5c", ["MIG-5c"]),
        ("", []),
    ],
)
def test_the_gpus_that_may_be_leased_are_those_that_cuda_shows_by_their_uuid(tmp_path, monkeypatch, variable, seen):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 0, GPU-6b83\necho 1, GPU-77aa\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert gpu_check.visible_gpus() == seen
