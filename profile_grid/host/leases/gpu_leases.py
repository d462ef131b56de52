"""Leases: whatever is measured on a GPU, or on the processor, is alone there, whoever else measures on this host.

A lease is a lock on a file per GPU and on one for the host, in a folder that all users share (host_locks.py). A
measurement on GPUs shares the host with those on other GPUs; one that needs the host to itself, as every one on the
processor does, shares it with none.

A process that gives its lease back at the end of its window stays on the GPU until it has ended, with an idle context
(680 MB on an H200), while its profiler writes. A second lock, a shared one, says that it is still there.

Waiting processes queue in order of arrival (lease_queue.py). They may be overtaken while too few GPUs are free for
them; after five minutes the GPUs that they can use are reserved for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from profile_grid.host.leases.host_locks import HostLock, LeaseError
from profile_grid.host.leases.lease_queue import QueueTicket, queued

HOST = "host"
STAYING = "staying-{}"  # the lock of processes that are on a GPU, with a lease or after it
PATIENCE_S = 300.0
PAUSE_S, PAUSE_IN_FRONT_S = 0.2, 0.05  # between two attempts; an attempt on four GPUs takes half a millisecond
BEFORE = "which waited before"


@dataclass(frozen=True)
class Lease:
    """GPUs that are leased."""

    gpus: tuple[str, ...]  # as their pool names them
    since_unix_s: float
    files: tuple[int, ...]  # descriptors of the locks of the host and of the GPUs
    staying: tuple[int, ...] = ()  # descriptors of the locks that say who is still on a GPU
    alone: bool = True  # no process that gave back an earlier lease was still there


class NotWanted(Exception):
    """The process that asked for a lease ended before it had one."""


@contextmanager
def acquire_lease(
    pool: Sequence[str],
    count: int,
    what: str,
    *,
    whole_host: bool = False,
    alone: bool = False,
    say: Callable[[str], None] = print,
    wanted: Callable[[], bool] = lambda: True,
) -> Iterator[Lease]:
    """Lease `count` GPUs of the pool, all or none, for a with block. Raises LeaseError if the pool has fewer, and
    NotWanted as soon as `wanted` is false.

    `what` is shown to processes that wait for this lease; `say` gets one line if this one has to wait, with for whom.
    With `alone` it also waits for processes that gave their lease back and are still on the GPU.
    """
    if count > len(pool):
        raise LeaseError(f"{what} needs {count} GPUs and can see {len(pool)} ({', '.join(pool) or 'none'})")
    said = False
    with ExitStack() as line:
        ticket = line.enter_context(queued(pool, count, whole_host, what))
        while wanted():
            ticket.looks()
            with ExitStack() as locks:
                taken, busy = _try_lock(locks, ticket, alone)
                if not busy:
                    line.close()
                    yield _signed(taken, what)
                    return
            if not said:
                say(f"{what} waits for {busy}")
                said = True
            time.sleep(PAUSE_IN_FRONT_S if len(ticket.names_before()) < max(len(pool), 1) else PAUSE_S)
        raise NotWanted


@dataclass(frozen=True)
class _Taken:
    """The locks of a lease: the host's; per GPU its lock, its `staying` lock, and whether nobody else held that."""

    host: HostLock
    gpus: list[HostLock] = field(default_factory=list)
    staying: list[HostLock] = field(default_factory=list)
    alone: list[bool] = field(default_factory=list)


def _signed(taken: _Taken, what: str) -> Lease:
    for lock in (taken.host, *taken.gpus):
        lock.sign(what)
    files = tuple(lock.file for lock in (taken.host, *taken.gpus))
    staying = tuple(lock.file for lock in taken.staying)
    return Lease(tuple(lock.name for lock in taken.gpus), time.time(), files, staying, all(taken.alone))


def _try_lock(locks: ExitStack, ticket: QueueTicket, alone: bool) -> tuple[_Taken, str]:
    """Try to lock the host and as many GPUs as the ticket asks for: (locks, ""), or (locks so far, whom to wait for).
    The queue is read only if enough GPUs are free: hundreds may wait, and each tries several times a second."""
    taken, busy, free = _Taken(locks.enter_context(HostLock(HOST))), [], {}
    if not taken.host.taken(shared=not ticket.whole_host):
        return taken, f"this host: {taken.host.holder()}"
    # others must not find more locked than there has to be
    most = len(ticket.gpus) if ticket.names_before() else ticket.count
    for gpu in ticket.gpus:
        if len(free) == most:
            break
        lock, staying = locks.enter_context(HostLock(gpu)), locks.enter_context(HostLock(STAYING.format(gpu)))
        if not lock.taken():
            busy.append(f"GPU {gpu}: {lock.holder()}")
        elif not (nobody := staying.taken()) and alone:
            busy.append(f"GPU {gpu}: a measurement that is over, whose process ends")
        else:
            free[gpu] = lock, staying, nobody
    available = dict(free)
    for earlier in ticket.before() if len(available) >= ticket.count else ():
        if earlier.whole_host:
            if ticket.whole_host or earlier.waited_s > PATIENCE_S:
                return taken, f"this host: {earlier.who}, {BEFORE}"
            continue
        for gpu in _taken_by(earlier, available):
            del available[gpu]
            busy.append(f"GPU {gpu}: {earlier.who}, {BEFORE}")
        if len(available) < ticket.count:
            return taken, "; ".join(busy)
    chosen = list(available)[: ticket.count]
    for gpu, (lock, staying, nobody) in free.items():
        if gpu not in chosen:
            lock.release()
            staying.release()
            continue
        staying.taken(shared=True)
        taken.gpus.append(lock)
        taken.staying.append(staying)
        taken.alone.append(nobody)
    return taken, "" if len(chosen) == ticket.count else "; ".join(busy)


def _taken_by(ticket: QueueTicket, free: Collection[str]) -> list[str]:
    """The free GPUs that a ticket will take, or that are reserved for it."""
    useful = [gpu for gpu in ticket.gpus if gpu in free]
    return useful[: ticket.count] if len(useful) >= ticket.count or ticket.waited_s > PATIENCE_S else []
