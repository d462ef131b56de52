"""Leases: what is measured on a GPU, or on the processor, is alone there, whoever else measures on this host.

A lease is a lock on a file per GPU and on one for the host, in a folder that all users share (host_locks.py). A
measurement on GPUs shares the host with those on other GPUs; one that needs the host to itself, as every one on the
processor does, shares it with none.

A process that gives its lease back when its window is over stays on the GPU until it is gone, with a context that does
nothing (680 MB on an H200): its profiler writes meanwhile. That it stays is a lock of its own, shared.

Whoever finds what it needs free has it, so one that needs several GPUs could wait for ever beside those that need one.
After five minutes it is next, by locks again: until it has its GPUs nobody else takes one that it could have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from profile_grid.measuring.host_locks import HostLock, LeaseError

HOST = "host"
STAYING = "staying-{}"  # the name of the lock of those who are on a GPU, with a lease or without one any more
NEXT = "next-{}"  # the name of the lock of who has waited so long that nobody else may take it
PATIENCE_S = 300.0
PAUSE_S = 0.2


@dataclass(frozen=True)
class Lease:
    """GPUs, as their pool names them; since when they are leased (Unix time); the descriptors whose locks these are,
    and those of the locks that say who stays. `alone`: nobody who gave an earlier lease back was there any more."""

    gpus: tuple[str, ...]
    since_unix_s: float
    files: tuple[int, ...]
    staying: tuple[int, ...] = ()
    alone: bool = True


class NotWanted(Exception):
    """Whoever was to have a lease is gone before there was one."""


@contextmanager
def leased(
    pool: Sequence[str],
    count: int,
    what: str,
    *,
    whole_host: bool = False,
    alone: bool = False,
    say: Callable[[str], None] = print,
    wanted: Callable[[], bool] = lambda: True,
) -> Iterator[Lease]:
    """So many GPUs of the pool, all or none, for the time of a with block. Raises LeaseError where there are fewer, and
    NotWanted where `wanted` says so first.

    `what` is told to those who wait for this lease; `say` gets one line where this one has to wait, with for whom. With
    `alone` it waits for those too who gave their lease back and are still there.
    """
    if count > len(pool):
        raise LeaseError(f"{what} needs {count} GPUs and can see {len(pool)} ({', '.join(pool) or 'none'})")
    started, said, is_next = time.monotonic(), False, False
    with ExitStack() as turn:
        while wanted():
            if not is_next and time.monotonic() - started > PATIENCE_S:
                is_next = _is_next(turn, [HOST] if whole_host else pool, what)
            with ExitStack() as locks:
                taken, busy = _tried(locks, pool, count, whole_host, alone, is_next)
                if not busy:
                    turn.close()
                    yield _signed(taken, what)
                    return
            if not said:
                say(f"{what} waits for {busy}")
                said = True
            time.sleep(PAUSE_S)
        raise NotWanted


@dataclass(frozen=True)
class _Taken:
    """The locks of a lease: the host's, and of each GPU its own and the one of who stays there."""

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


def _is_next(turn: ExitStack, names: Sequence[str], what: str) -> bool:
    """Whether nobody else is next for any of these; then this one is, until `turn` ends."""
    with ExitStack() as tried:
        locks = [tried.enter_context(HostLock(NEXT.format(name))) for name in names]
        if not all(lock.taken() for lock in locks):
            return False
        for lock in locks:
            lock.sign(what)
        turn.enter_context(tried.pop_all())
        return True


def _who_is_next(name: str) -> str:
    """Who is next for this, or ""."""
    with HostLock(NEXT.format(name)) as lock:
        return "" if lock.taken(shared=True) else f"{lock.holder()}, which waited before"


def _tried(
    locks: ExitStack, pool: Sequence[str], count: int, whole_host: bool, alone: bool, is_next: bool
) -> tuple[_Taken, str]:
    """The host's lock and those of the GPUs that were free, and ""; or who has what is missing, or is to have it."""
    taken, busy = _Taken(locks.enter_context(HostLock(HOST))), []
    if not is_next and (other := _who_is_next(HOST)):
        return taken, f"this host: {other}"
    if not taken.host.taken(shared=not whole_host):
        return taken, f"this host: {taken.host.holder()}"
    for gpu in pool:
        if len(taken.gpus) == count:
            break
        lock, staying = locks.enter_context(HostLock(gpu)), locks.enter_context(HostLock(STAYING.format(gpu)))
        if not is_next and (other := _who_is_next(gpu)):
            busy.append(f"GPU {gpu}: {other}")
        elif not lock.taken():
            busy.append(f"GPU {gpu}: {lock.holder()}")
        elif not (nobody := staying.taken()) and alone:
            busy.append(f"GPU {gpu}: a measurement that is over, whose process ends")
        else:
            staying.taken(shared=True)
            taken.gpus.append(lock)
            taken.staying.append(staying)
            taken.alone.append(nobody)
    return taken, "" if len(taken.gpus) == count else "; ".join(busy)
