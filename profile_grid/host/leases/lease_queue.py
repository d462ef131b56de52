"""The line of those who wait for a lease on this host, whoever they are: first come, first served.

Who waits has a file, whose name says since when and whose lock says that it still does; the file says what would do. It
is touched at every look: one that is stopped, as by Ctrl-Z, keeps its lock, and must not keep out everybody behind it.
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
STALE_S = 10.0  # since it looked last


@dataclass(frozen=True)
class QueueTicket:
    """Who waits: for so many of these GPUs, or for the whole host; by what name, which says since when."""

    path: Path
    who: str
    gpus: tuple[str, ...]
    count: int
    whole_host: bool

    @property
    def waited_s(self) -> float:
        """Seconds since it came."""
        return (_now_ns() - int(NAME.fullmatch(self.path.name)[1])) / 1e9

    def names_before(self) -> list[str]:
        """Of the places of those who came earlier and have looked of late, in their order."""
        names = [name for name in sorted(names_beginning(WAITING)) if name < self.path.name and NAME.fullmatch(name)]
        return [name for name in names if time.time() - _looked_unix_s(self.path.with_name(name)) < STALE_S]

    def before(self) -> Iterator[QueueTicket]:
        """Those who came earlier and still wait, in their order."""
        return (place for name in self.names_before() if (place := _place(name)) is not None)

    def looks(self) -> None:
        """Shows the others that this one still looks for its turn."""
        with suppress(FileNotFoundError):  # somebody has cleared the folder up
            os.utime(self.path)


@contextmanager
def queued(gpus: Sequence[str], count: int, whole_host: bool, what: str) -> Iterator[QueueTicket]:
    """A place at the end of the line, for the time of a with block."""
    number = f"{_now_ns():020d}-{os.getpid()}"
    with HostLock(f"comes-{number}") as lock:
        lock.taken()
        lock.sign(what, gpus=list(gpus), count=count, whole_host=whole_host)
        lock.rename(WAITING + number)  # others see it locked and whole
        try:
            yield QueueTicket(lock.path, lock.holder(), tuple(gpus), count, whole_host)
        finally:
            lock.path.unlink(missing_ok=True)  # somebody may have cleared the folder up


def _place(name: str) -> QueueTicket | None:
    """The place of this name; None where nobody waits there any more."""
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


def _looked_unix_s(path: Path) -> float:
    """When who waits there looked last; 0 where nobody does any more."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _now_ns() -> int:
    """The clock that nobody sets, the same for all processes of a host."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
