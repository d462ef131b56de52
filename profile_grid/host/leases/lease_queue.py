"""The queue of processes that wait for a lease on this host, of any user, in order of arrival.

A waiting process has a ticket: a file whose name says since when it waits, whose lock says that it still does, and
whose content says what it needs. It touches the file at every attempt: a process that is stopped, as by Ctrl-Z, keeps
its lock, and must not keep out everybody after it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from profile_grid.host.leases.host_locks import HostLock, names_beginning

WAITING = "waiting-"
NAME = re.compile(rf"{WAITING}(\d{{20}})-\d+")  # the moment, in ns since the host was started, and the process
STALE_S = 10.0  # since its last attempt


@dataclass(frozen=True)
class QueueTicket:
    """A process that waits for `count` of these GPUs, or for the whole host."""

    path: Path
    who: str
    gpus: tuple[str, ...]
    count: int
    whole_host: bool

    @property
    def waited_s(self) -> float:
        """Seconds since it joined the queue."""
        return (_now_ns() - int(NAME.fullmatch(self.path.name)[1])) / 1e9

    def names_before(self) -> list[str]:
        """The file names of earlier tickets whose processes still try, oldest first."""
        names = [name for name in sorted(names_beginning(WAITING)) if name < self.path.name and NAME.fullmatch(name)]
        return [name for name in names if time.time() - _last_attempt_unix_s(self.path.with_name(name)) < STALE_S]

    def before(self) -> Iterator[QueueTicket]:
        """Earlier tickets that still wait, oldest first."""
        return (ticket for name in self.names_before() if (ticket := _read_ticket(name)) is not None)

    def looks(self) -> None:
        """Shows the others that this process still tries."""
        with suppress(FileNotFoundError):  # somebody has cleared the folder up
            os.utime(self.path)


@contextmanager
def queued(gpus: Sequence[str], count: int, whole_host: bool, what: str) -> Iterator[QueueTicket]:
    """A ticket at the end of the queue, for a with block."""
    number = f"{_now_ns():020d}-{os.getpid()}"
    with HostLock(f"comes-{number}") as lock:
        lock.taken()
        lock.sign(what, gpus=list(gpus), count=count, whole_host=whole_host)
        lock.rename(WAITING + number)  # others see it locked and whole
        try:
            yield QueueTicket(lock.path, lock.holder(), tuple(gpus), count, whole_host)
        finally:
            lock.path.unlink(missing_ok=True)  # somebody may have cleared the folder up


def _read_ticket(name: str) -> QueueTicket | None:
    """The ticket in the file of this name; None if nobody waits with it any more."""
    with suppress(FileNotFoundError), HostLock(name, make=False) as lock:
        if lock.taken(shared=True):  # it was killed
            with suppress(OSError):  # another user's
                lock.path.unlink()
            return None
        with suppress(ValueError, KeyError, TypeError):  # the disk was full, or it is of another version
            fields = json.loads(lock.path.read_text())
            return QueueTicket(
                lock.path, lock.holder(), tuple(fields["gpus"]), int(fields["count"]), bool(fields["whole_host"])
            )
    return None


def _last_attempt_unix_s(path: Path) -> float:
    """When its process tried last; 0 if the ticket is gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _now_ns() -> int:
    """A clock that cannot be set, the same for all processes of a host."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
