"""Leases: a measurement on a GPU, or on the CPU, runs there alone, even if others measure on this host.

A lease is a lock on one file per GPU and on one for the host, in a folder that all users share (host_locks.py).
Measurements on different GPUs share the host. One that needs the host to itself, as every measurement on the CPU does,
shares it with none.

A process that returns its lease after its measured steps stays on the GPU until it has ended, with an idle context (680
MB on an H200), while its profiler writes. A second, shared lock says that it is still present.

Waiting processes queue in order of arrival. They may be overtaken while too few GPUs are free for them; after five
minutes the GPUs that they can use are reserved for them. The place of a process in the queue is a ticket: a file that
it holds locked while it waits. The file's name says since when it waits, the content says what it needs. The process
touches the file at every attempt: a stopped process (Ctrl-Z) keeps its lock, and must not keep out everybody after it.
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

HOST = "host"  # name of the lock on the entire host; a HostLock is any lock that all processes of this host see
PRESENCE_LOCK = "present-{}"  # name for one GPU; all processes on it share this lock, also those that returned a lease
RESERVE_AFTER_S = 300.0  # of waiting: from then on, the GPUs that a ticket can use are reserved for it
POLL_S, POLL_NEAR_FRONT_S = 0.2, 0.05  # between two attempts; an attempt on four GPUs takes half a millisecond
TICKET_PREFIX = "waiting-"
TICKET_NAME = re.compile(rf"{TICKET_PREFIX}(\d{{20}})-\d+")  # nanoseconds from the start of the host, process id
STALE_TICKET_S = 10.0  # since the last attempt: then the process counts as stopped, and its ticket is ignored


@dataclass(frozen=True)
class Lease:
    """GPUs that are leased; none if only the host is."""

    gpus: tuple[str, ...]  # by their names in the pool of acquire_lease
    since_unix_s: float
    lock_descriptors: tuple[int, ...]  # of the files that lock the host and the GPUs
    presence_descriptors: tuple[int, ...] = ()  # of the files that say who is present on the GPUs
    is_alone: bool = True  # no process that returned an earlier lease was still present


class RequestWithdrawn(Exception):
    """A lease that was waited for is not wanted any more: the process that asked for it has ended."""


class GpuLocks(NamedTuple):
    """The locks of one GPU."""

    gpu: HostLock
    presence: HostLock
    is_alone: bool  # nobody else is present


@dataclass(frozen=True)
class QueueTicket:
    """The place of a process in the queue: it waits for `count` of these GPUs and, if `whole_host`, the entire host."""

    path: Path
    holder: str  # in words: who waits, for what and since when
    gpus: tuple[str, ...]
    count: int
    whole_host: bool

    @property
    def has_waited_long(self) -> bool:
        """Whether the GPUs that it can use are already reserved for it."""
        return _now_ns() - int(TICKET_NAME.fullmatch(self.path.name)[1]) > 1e9 * RESERVE_AFTER_S

    def earlier_names(self) -> list[str]:
        """The file names of earlier tickets that were touched lately, oldest first."""
        tickets = filter(TICKET_NAME.fullmatch, lock_names(TICKET_PREFIX))
        names = sorted(name for name in tickets if name < self.path.name)
        oldest_unix_s = time.time() - STALE_TICKET_S
        return [name for name in names if _last_attempt_unix_s(self.path.with_name(name)) > oldest_unix_s]

    def earlier_tickets(self) -> Iterator["QueueTicket"]:
        """Earlier tickets that were touched lately and are still locked, oldest first."""
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
    must_be_alone: bool = False,
    say: Callable[[str], None] = print,
    is_wanted: Callable[[], bool] = lambda: True,
) -> Iterator[Lease]:
    """Lease `count` GPUs of the pool, all or none, for a with block. Raises LeaseError if the pool has fewer, and
    RequestWithdrawn as soon as `is_wanted` is false.

    `purpose` is shown to processes that wait for this lease; `say` is called once, with the names of the holders, if
    this one has to wait. With `whole_host`, nobody else has a lease on the host meanwhile. With `must_be_alone`, it
    also waits for processes that returned their lease and are still on the GPUs.
    """
    if count > len(pool):
        raise LeaseError(f"{purpose} needs {count} GPUs and can see {len(pool)} ({', '.join(pool) or 'none'})")
    is_announced = False
    with ExitStack() as place_in_queue:
        ticket = place_in_queue.enter_context(new_ticket(pool, count, whole_host, purpose))
        while is_wanted():
            ticket.touch()
            with ExitStack() as locks:
                lease, obstacles = _try_lease(locks, ticket, purpose, must_be_alone)
                if lease:
                    place_in_queue.close()  # others need not wait for this ticket any more
                    yield lease
                    return
            if not is_announced:
                say(f"{purpose} waits for {'; '.join(obstacles)}")
                is_announced = True
            is_near_front = len(ticket.earlier_names()) < max(len(pool), 1)
            time.sleep(POLL_NEAR_FRONT_S if is_near_front else POLL_S)
        raise RequestWithdrawn


def _try_lease(
    locks: ExitStack, ticket: QueueTicket, purpose: str, must_be_alone: bool
) -> tuple[Lease | None, list[str]]:
    """One attempt at what a ticket asks for: (lease, []), or (None, whom to wait for). `locks` gets all locks."""
    host = locks.enter_context(HostLock(HOST))
    if not host.try_lock(shared=not ticket.whole_host):
        return None, [f"this host: {host.holder()}"]
    free, obstacles = _lock_free_gpus(locks, ticket, must_be_alone)
    if len(free) < ticket.count:  # now, before _reserved reads the tickets: hundreds may wait, and try often
        return None, obstacles
    reserved = _reserved(ticket, free)
    obstacles += [f"{'this host' if name == HOST else f'GPU {name}'}: {holder}" for name, holder in reserved.items()]
    chosen = [gpu_locks for name, gpu_locks in free.items() if name not in reserved][: ticket.count]
    if HOST in reserved or len(chosen) < ticket.count:
        return None, obstacles
    for gpu_locks in free.values():
        if gpu_locks in chosen:
            gpu_locks.presence.try_lock(shared=True)  # exclusive so far if alone; later processes must get it too
        else:
            gpu_locks.presence.release()
            gpu_locks.gpu.release()
    return _signed_lease(host, chosen, purpose), []


def _lock_free_gpus(
    locks: ExitStack, ticket: QueueTicket, must_be_alone: bool
) -> tuple[dict[str, GpuLocks], list[str]]:
    """(free, obstacles): the locks of the free GPUs, now held, by GPU, and who has the others. If earlier tickets wait,
    all free GPUs are locked, since some may be reserved; otherwise not more than the ticket needs, since others would
    find the rest locked."""
    free: dict[str, GpuLocks] = {}
    obstacles = []
    max_locked = len(ticket.gpus) if ticket.earlier_names() else ticket.count
    for name in ticket.gpus:
        if len(free) == max_locked:
            break
        gpu = locks.enter_context(HostLock(name))
        presence = locks.enter_context(HostLock(PRESENCE_LOCK.format(name)))
        if not gpu.try_lock():
            obstacles.append(f"GPU {name}: {gpu.holder()}")
            continue
        is_alone = presence.try_lock()  # exclusively, which fails if a process is present
        if must_be_alone and not is_alone:
            gpu.release()
            obstacles.append(f"GPU {name}: a measurement that is over, whose process ends")
        else:
            free[name] = GpuLocks(gpu, presence, is_alone)
    return free, obstacles


def _reserved(ticket: QueueTicket, free_gpus: Collection[str]) -> dict[str, str]:
    """Whom to wait for, by free GPU: the holder of an earlier ticket that will take the GPU, or for which it is
    reserved. If an earlier ticket has such a claim to the entire host, the only key is HOST."""
    reserved: dict[str, str] = {}
    for earlier in ticket.earlier_tickets():
        holder = f"{earlier.holder}, which waited before"
        if earlier.whole_host:
            if ticket.whole_host or earlier.has_waited_long:
                return {HOST: holder}
            continue  # until then, those who need only GPUs may overtake it
        usable_gpus = [gpu for gpu in earlier.gpus if gpu in free_gpus and gpu not in reserved]
        if len(usable_gpus) >= earlier.count or earlier.has_waited_long:
            reserved |= dict.fromkeys(usable_gpus[: earlier.count], holder)
        if len(free_gpus) - len(reserved) < ticket.count:
            break  # too few are left, whatever later tickets say
    return reserved


def _signed_lease(host: HostLock, gpus: Sequence[GpuLocks], purpose: str) -> Lease:
    """The lease of these locked GPUs. The files of their locks and of the host's now say who has them."""
    signed_locks = (host, *(gpu_locks.gpu for gpu_locks in gpus))
    for lock in signed_locks:
        lock.sign(purpose)
    return Lease(
        gpus=tuple(gpu_locks.gpu.name for gpu_locks in gpus),
        since_unix_s=time.time(),
        lock_descriptors=tuple(lock.descriptor for lock in signed_locks),
        presence_descriptors=tuple(gpu_locks.presence.descriptor for gpu_locks in gpus),
        is_alone=all(gpu_locks.is_alone for gpu_locks in gpus),
    )


@contextmanager
def new_ticket(gpus: Sequence[str], count: int, whole_host: bool, purpose: str) -> Iterator[QueueTicket]:
    """A ticket at the end of the queue, for a with block."""
    time_and_process = f"{_now_ns():020d}-{os.getpid()}"
    with HostLock(f"new-{time_and_process}") as lock:
        lock.try_lock()
        lock.sign(purpose, gpus=list(gpus), count=count, whole_host=whole_host)
        lock.rename(TICKET_PREFIX + time_and_process)  # others see it locked and complete
        try:
            yield QueueTicket(lock.path, lock.holder(), tuple(gpus), count, whole_host)
        finally:
            lock.path.unlink(missing_ok=True)  # somebody may have cleared the folder


def _read_ticket(name: str) -> QueueTicket | None:
    """The ticket in the file of this name; None if nobody waits with it any more."""
    with suppress(FileNotFoundError), HostLock(name, create=False) as lock:
        if lock.try_lock(shared=True):  # the process that waited with it was killed
            with suppress(OSError):  # it is another user's
                lock.path.unlink()
            return None
        with suppress(ValueError, KeyError, TypeError):  # the disk was full, or another version wrote it
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
