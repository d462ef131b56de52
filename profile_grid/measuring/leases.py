"""Leases: what is measured on a GPU, or on the processor, is alone there, whoever else measures on this host.

A lease is a lock on a file per GPU and on one for the host, in a folder that all users share (host_locks.py). A
measurement on GPUs shares the host with those on other GPUs; one that needs the host to itself, as every one on the
processor does, shares it with none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from profile_grid.measuring.host_locks import HostLock, LeaseError

HOST = "host"
PAUSE_S = 0.2


@dataclass(frozen=True)
class Lease:
    """GPUs, as their pool names them; since when they are leased (Unix time); the descriptors whose locks these are."""

    gpus: tuple[str, ...]
    since_unix_s: float
    files: tuple[int, ...]


class NotWanted(Exception):
    """Whoever was to have a lease is gone before there was one."""


@contextmanager
def leased(
    pool: Sequence[str],
    count: int,
    what: str,
    *,
    whole_host: bool = False,
    say: Callable[[str], None] = print,
    wanted: Callable[[], bool] = lambda: True,
) -> Iterator[Lease]:
    """So many GPUs of the pool, all or none, for the time of a with block. Raises LeaseError where there are fewer, and
    NotWanted where `wanted` says so first.

    `what` is told to those who wait for this lease; `say` gets one line where this one has to wait, with for whom.
    """
    if count > len(pool):
        raise LeaseError(f"{what} needs {count} GPUs and can see {len(pool)} ({', '.join(pool) or 'none'})")
    said = False
    while wanted():
        with ExitStack() as locks:
            taken, busy = _tried(locks, pool, count, whole_host)
            if not busy:
                for lock in taken:
                    lock.sign(what)
                files = tuple(lock.file for lock in taken)
                yield Lease(tuple(lock.name for lock in taken[1:]), time.time(), files)
                return
        if not said:
            say(f"{what} waits for {busy}")
            said = True
        time.sleep(PAUSE_S)
    raise NotWanted


def _tried(locks: ExitStack, pool: Sequence[str], count: int, whole_host: bool) -> tuple[list[HostLock], str]:
    """The host's lock and those of the GPUs that were free, and ""; or who has what is missing."""
    host = locks.enter_context(HostLock(HOST))
    if not host.taken(shared=not whole_host):
        return [], f"this host: {host.holder()}"
    taken, busy = [host], []
    for gpu in pool:
        if len(taken) > count:
            break
        lock = locks.enter_context(HostLock(gpu))
        if lock.taken():
            taken.append(lock)
        else:
            busy.append(f"GPU {gpu}: {lock.holder()}")
    return taken, "" if len(taken) > count else "; ".join(busy)
