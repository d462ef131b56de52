"""Leases: a measurement on a GPU, or on the CPU, runs there alone, even if others measure on this host.

A lease is a lock on one file per GPU and on one for the host, in a folder that all users share (host_locks.py).
Measurements on different GPUs share the host. One that needs the host to itself, as every measurement on the CPU does,
shares it with none.

A process that returns its lease after its measured steps stays on the GPU until it has ended, with an idle context (680
MB on an H200), while its profiler writes. A second, shared lock says that it is still present.

Waiting processes queue in order of arrival. They may be overtaken while too few GPUs are free for them; after five
minutes the GPUs that they can use are reserved for them. A ticket is a file whose name says since when its process
waits, whose lock says that it still does, and whose content says what it needs. The process touches the file at every
attempt: a stopped process (Ctrl-Z) keeps its lock, and must not keep out everybody after it.
"""

import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from profile_grid.host.leases.host_locks import HostLock, LeaseError, lock_names

HOST = "host"
PRESENCE = "staying-{}"  # the lock of processes that are on a GPU, with a lease or after it
PATIENCE_S = 300.0
PAUSE_S, PAUSE_IN_FRONT_S = 0.2, 0.05  # between two attempts; an attempt on four GPUs takes half a millisecond
WAITING = "waiting-"
TICKET_NAME = re.compile(rf"{WAITING}(\d{{20}})-\d+")  # nanoseconds since the host started, and the process
STALE_S = 10.0  # since the last attempt


@dataclass(frozen=True)
class Lease:
    """GPUs that are leased."""

    gpus: tuple[str, ...]  # as their pool names them
    since_unix_s: float
    files: tuple[int, ...]  # descriptors of the locks of the host and of the GPUs
    presence_files: tuple[int, ...] = ()  # descriptors of the locks of who is present on a GPU
    alone: bool = True  # no process that returned an earlier lease was still present


class NotWanted(Exception):
    """The `wanted` of a request became false before there was a lease: the process that asked for it has ended."""


class GpuLocks(NamedTuple):
    """The locks of one GPU."""

    gpu: HostLock
    presence: HostLock
    is_alone: bool  # nobody else is present


@dataclass(frozen=True)
class QueueTicket:
    """The place of a process in the queue: it waits for `count` of these GPUs, or for the entire host."""

    path: Path
    holder: str
    gpus: tuple[str, ...]
    count: int
    whole_host: bool

    @property
    def waited_long(self) -> bool:
        """Whether it must not be overtaken any more."""
        return _now_ns() - int(TICKET_NAME.fullmatch(self.path.name)[1]) > 1e9 * PATIENCE_S

    def earlier_names(self) -> list[str]:
        """The file names of earlier tickets whose processes still try, oldest first."""
        names = [name for name in sorted(lock_names(WAITING)) if name < self.path.name and TICKET_NAME.fullmatch(name)]
        return [name for name in names if time.time() - _last_attempt_unix_s(self.path.with_name(name)) < STALE_S]

    def earlier(self) -> Iterator["QueueTicket"]:
        """Earlier tickets whose processes still wait, oldest first."""
        return (ticket for name in self.earlier_names() if (ticket := _read_ticket(name)) is not None)

    def touch(self) -> None:
        """Shows the others that this process still tries."""
        with suppress(FileNotFoundError):  # somebody has cleared the folder
            os.utime(self.path)


@contextmanager
def acquire_lease(
    pool: Sequence[str],
    count: int,
    purpose: str,
    *,
    whole_host: bool = False,
    alone: bool = False,
    say: Callable[[str], None] = print,
    wanted: Callable[[], bool] = lambda: True,
) -> Iterator[Lease]:
    """Lease `count` GPUs of the pool, all or none, for a with block. Raises LeaseError if the pool has fewer, and
    NotWanted as soon as `wanted` is false.

    `purpose` is shown to processes that wait for this lease; `say` is called once, with the name of the holder, if this
    one has to wait. With `alone` it also waits for processes that returned their lease and are still on the GPU.
    """
    if count > len(pool):
        raise LeaseError(f"{purpose} needs {count} GPUs and can see {len(pool)} ({', '.join(pool) or 'none'})")
    is_announced = False
    with ExitStack() as queue:
        ticket = queue.enter_context(queued(pool, count, whole_host, purpose))
        while wanted():
            ticket.touch()
            with ExitStack() as locks:
                lease = _try_lock(locks, ticket, purpose, alone)
                if isinstance(lease, Lease):
                    queue.close()
                    yield lease
                    return
            if not is_announced:
                say(f"{purpose} waits for {lease}")
                is_announced = True
            time.sleep(PAUSE_IN_FRONT_S if len(ticket.earlier_names()) < max(len(pool), 1) else PAUSE_S)
        raise NotWanted


def _try_lock(locks: ExitStack, ticket: QueueTicket, purpose: str, alone: bool) -> Lease | str:
    """The lease that a ticket asks for, or whom to wait for. The locks are entered into `locks`."""
    host, free, busy = locks.enter_context(HostLock(HOST)), {}, []
    if not host.try_lock(shared=not ticket.whole_host):
        return f"this host: {host.holder()}"
    # behind earlier tickets some free GPUs may be reserved, so all are tried; otherwise others must not find more
    # locked than necessary
    enough = len(ticket.gpus) if ticket.earlier_names() else ticket.count
    for name in ticket.gpus:
        if len(free) == enough:
            break
        gpu, presence = (locks.enter_context(HostLock(lock)) for lock in (name, PRESENCE.format(name)))
        if not gpu.try_lock():
            busy.append(f"GPU {name}: {gpu.holder()}")
        elif not (is_alone := presence.try_lock()) and alone:
            busy.append(f"GPU {name}: a measurement that is over, whose process ends")
        else:
            free[name] = GpuLocks(gpu, presence, is_alone)
    # hundreds may wait, and each tries several times a second: the queue is read only if enough GPUs are free
    reserved = _reserved(ticket, free) if len(free) >= ticket.count else {}
    busy += [f"{'this host' if name == HOST else f'GPU {name}'}: {holder}" for name, holder in reserved.items()]
    chosen = [free[name] for name in free if name not in reserved][: ticket.count]
    if HOST in reserved or len(chosen) < ticket.count:
        return "; ".join(busy)
    for gpu_locks in free.values():
        if gpu_locks in chosen:
            gpu_locks.presence.try_lock(shared=True)  # no longer exclusive, or like those present
        else:
            gpu_locks.presence.release()
            gpu_locks.gpu.release()
    signed = (host, *(gpu_locks.gpu for gpu_locks in chosen))
    for lock in signed:
        lock.sign(purpose)
    return Lease(
        gpus=tuple(gpu_locks.gpu.name for gpu_locks in chosen),
        since_unix_s=time.time(),
        files=tuple(lock.file for lock in signed),
        presence_files=tuple(gpu_locks.presence.file for gpu_locks in chosen),
        alone=all(gpu_locks.is_alone for gpu_locks in chosen),
    )


def _reserved(ticket: QueueTicket, free: Collection[str]) -> dict[str, str]:
    """The free GPUs, or HOST, that earlier tickets will take or that are reserved for them, with whom to wait for."""
    reserved: dict[str, str] = {}
    for earlier in ticket.earlier():
        holder = f"{earlier.holder}, which waited before"
        if earlier.whole_host:
            if ticket.whole_host or earlier.waited_long:
                return {HOST: holder}
            continue
        useful = [gpu for gpu in earlier.gpus if gpu in free and gpu not in reserved]
        if len(useful) >= earlier.count or earlier.waited_long:
            reserved |= dict.fromkeys(useful[: earlier.count], holder)
        if len(free) - len(reserved) < ticket.count:
            break
    return reserved


@contextmanager
def queued(gpus: Sequence[str], count: int, whole_host: bool, purpose: str) -> Iterator[QueueTicket]:
    """A ticket at the end of the queue, for a with block."""
    number = f"{_now_ns():020d}-{os.getpid()}"
    with HostLock(f"comes-{number}") as lock:
        lock.try_lock()
        lock.sign(purpose, gpus=list(gpus), count=count, whole_host=whole_host)
        lock.rename(WAITING + number)  # others see it locked and complete
        try:
            yield QueueTicket(lock.path, lock.holder(), tuple(gpus), count, whole_host)
        finally:
            lock.path.unlink(missing_ok=True)  # somebody may have cleared the folder


def _read_ticket(name: str) -> QueueTicket | None:
    """The ticket in the file of this name; None if nobody waits with it any more."""
    with suppress(FileNotFoundError), HostLock(name, make=False) as lock:
        if lock.try_lock(shared=True):  # its process was killed
            with suppress(OSError):  # another user's
                lock.path.unlink()
            return None
        with suppress(ValueError, KeyError, TypeError):  # the disk was full, or it is of another version
            fields = json.loads(lock.path.read_text())
            gpus, count, whole_host = tuple(fields["gpus"]), int(fields["count"]), bool(fields["whole_host"])
            return QueueTicket(lock.path, lock.holder(), gpus, count, whole_host)
    return None


def _last_attempt_unix_s(path: Path) -> float:
    """When the process of a ticket tried last; 0 if the ticket is gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _now_ns() -> int:
    """A clock that cannot be set, the same for all processes of a host."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
