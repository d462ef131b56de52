"""The history of a process's memory: what was allocated and freed, in order, and which ranges were open. No torch.

An event is one allocation or one release; its number is its place in the order of all. A range is open from the event
that comes first in it to the one that comes first behind it.
"""

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

FORMAT = 1
FREED_BEFORE = -1  # what a release frees that was allocated before the recording began


class Event(NamedTuple):
    """One allocation of so many bytes, or the release of what lies at the address."""

    allocates: bool
    address: int
    size: int
    time_us: float
    range: int | None = None  # the innermost that was open, where the recorder knows it
    operator: str | None = None


@dataclass
class Range:
    """One range: its name, the one around it (by its number, None outside of all), its first and next event, and
    whether an error ended it."""

    name: str
    inside: int | None
    opened: int
    closed: int | None = None
    failed: bool = False


@dataclass(frozen=True)
class Unmet:
    """A request for memory that the device did not have: how many events came before it, the bytes asked for, those
    that were free, and the innermost range that it ended (None outside of all, or where the program went on)."""

    event: int
    requested_bytes: int
    free_bytes: int | None
    range: int | None


@dataclass
class History:
    """All events and ranges of a process, and what it found at its end: `held` has the addresses of storages by
    category, `counters` what the allocator counted itself, `cannot` what this kind of recording does not see, `unmet`
    the last request that it could not meet."""

    events: list[Event]
    ranges: list[Range]
    held: Mapping[str, Iterable[int]]
    counters: dict[str, int | None]
    cannot: list[str] = field(default_factory=list)
    unmet: Unmet | None = None

    def as_record(self) -> dict[str, Any]:
        """What is written: allocations instead of addresses, columns instead of rows."""
        allocations, live = paired(self.events)
        category = {
            live[address]: name for name, addresses in self.held.items() for address in addresses if address in live
        }
        inside = innermost(self.ranges, len(self.events))
        return {
            "format": FORMAT,
            "time_us": [round(event.time_us - self.events[0].time_us, 3) for event in self.events],
            "allocations": {
                "bytes": [self.events[made].size for made, _ in allocations],
                "made": [made for made, _ in allocations],
                "freed": [freed for _, freed in allocations],
                "range": [
                    inside[made] if self.events[made].range is None else self.events[made].range
                    for made, _ in allocations
                ],
                "operator": [self.events[made].operator for made, _ in allocations],
                "held": [category.get(made) for made, _ in allocations],
            },
            "ranges": {
                name: [getattr(one, name) for one in self.ranges] for name in ("name", "inside", "opened", "closed")
            },
            "counters": self.counters,
            "cannot": self.cannot,
            "unmet": self.unmet and vars(self.unmet),
        }


def paired(events: list[Event]) -> tuple[list[tuple[int, int | None]], dict[int, int]]:
    """Per allocation the numbers of its event and of its release (None where it is never released), and what is live
    at the end: address to number. A release of what was allocated before the recording is no allocation of it.

    Raises ValueError where an address is given out twice: a release is missing."""
    allocations: list[list[int | None]] = []
    live: dict[int, int] = {}
    for number, event in enumerate(events):
        if not event.allocates:
            position = live.pop(event.address, FREED_BEFORE)
            if position != FREED_BEFORE:
                allocations[position][1] = number
        elif event.address in live:
            raise ValueError(f"event {number}: memory is allocated where an allocation is live; a release is missing")
        else:
            live[event.address] = len(allocations)
            allocations.append([number, None])
    return [(made, freed) for made, freed in allocations], {at: allocations[one][0] for at, one in live.items()}


def innermost(ranges: list[Range], count: int) -> list[int | None]:
    """Per event the number of the innermost range that was open; ranges stand in the order in which they opened."""
    found: list[int | None] = [None] * count
    for number, one in enumerate(ranges):
        end = count if one.closed is None else one.closed
        found[one.opened : end] = [number] * (end - one.opened)
    return found


def write(record: dict[str, Any], path: Path) -> None:
    """Writes the record as packed JSON; the time of packing is no part of it."""
    path.write_bytes(gzip.compress(json.dumps(record, allow_nan=False, separators=(",", ":")).encode(), mtime=0))
