"""The line of those who wait for a lease on this host, whoever they are: first come, first served.

Who waits has a file, whose name says since when and whose lock says that it still does; the file says what would do.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from profile_grid.measuring.host_locks import HostLock, names_beginning

WAITING = "waiting-"


@dataclass(frozen=True)
class Place:
    """Who waits: for so many of these GPUs, or for the whole host; since when (Unix time); by what name."""

    name: str
    who: str
    gpus: tuple[str, ...]
    count: int
    whole_host: bool

    @property
    def waited_s(self) -> float:
        """Seconds since it came."""
        return time.time() - int(self.name.split("-")[1]) / 1e9

    def names_before(self) -> list[str]:
        """Of the places of those who came earlier, in their order; who was killed may be among them."""
        return [name for name in sorted(names_beginning(WAITING)) if name < self.name]

    def before(self) -> Iterator[Place]:
        """Those who came earlier and still wait, in their order."""
        return (place for name in self.names_before() if (place := _place(name)) is not None)


@contextmanager
def in_line(gpus: Sequence[str], count: int, whole_host: bool, what: str) -> Iterator[Place]:
    """A place at the end of the line, for the time of a with block."""
    number = f"{time.time_ns():020d}-{os.getpid()}"
    with HostLock(f"comes-{number}") as lock:
        lock.taken()
        lock.sign(what, gpus=list(gpus), count=count, whole_host=whole_host)
        path = lock.path.rename(lock.path.with_name(WAITING + number))  # others see it locked and whole
        try:
            yield Place(path.name, lock.holder(path), tuple(gpus), count, whole_host)
        finally:
            with suppress(OSError):  # somebody has cleared the folder up
                path.unlink()


def _place(name: str) -> Place | None:
    """The place of this name; None where nobody waits there any more."""
    with suppress(FileNotFoundError), HostLock(name, make=False) as lock:
        if lock.taken(shared=True):  # it was killed
            with suppress(OSError):  # another user's
                lock.path.unlink()
            return None
        with suppress(ValueError, KeyError, TypeError):  # the disk was full, or it is of another version
            told = json.loads(lock.path.read_text())
            return Place(name, lock.holder(), tuple(told["gpus"]), int(told["count"]), bool(told["whole_host"]))
    return None
