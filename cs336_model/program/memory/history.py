"""The history of a process's memory: allocations and releases in order, and the ranges that were open. No torch.

An event is one allocation or one release; its number is its position. A range is open from its first event to the first
event after it.
"""

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

FORMAT = 2


class AllocatorEvent(NamedTuple):
    """An allocation of `size` bytes, or the release of the memory at the address."""

    allocates: bool
    address: int
    size: int
    time_us: float
    operator: str | None = None
    line: str | None = None  # of Python, which called the operator


@dataclass
class RecordedRange:
    """A range, and the events that it contains."""

    name: str
    enclosing: int | None  # number of the range around it; None outside of all
    first_event: int
    event_after: int | None = None  # the first event after it; None while it is open
    failed: bool = False  # whether it ended because memory ran out


@dataclass(frozen=True)
class FailedAllocation:
    """A request for memory that the device did not have."""

    event: int  # number of earlier events
    requested_bytes: int
    free_bytes: int | None
    range: int | None  # number of the innermost range that it ended; None outside of all, or if the program went on


@dataclass
class AllocatorRecording:
    """All events and ranges of a process, and its state at the end."""

    events: list[AllocatorEvent]
    ranges: list[RecordedRange]
    held_addresses: Mapping[str, Iterable[int]]  # of storages, by category
    counters: dict[str, int | None]  # of the allocator
    not_recorded: list[str] = field(default_factory=list)  # sentences about what this kind of recording does not see
    failed_allocation: FailedAllocation | None = None  # the last one
    dtypes: list[dict[str, Any]] = field(default_factory=list)  # of the first step (recording.py)

    def as_record(self) -> dict[str, Any]:
        """The history as the file has it: allocations without addresses, and columns instead of rows."""
        release_of_allocation, live = pair_releases(self.events)
        category_of_allocation = {
            live[address]: category
            for category, addresses in self.held_addresses.items()
            for address in addresses
            if address in live
        }
        range_of_event = innermost_ranges(self.ranges, len(self.events))
        allocations = [self.events[number] for number in release_of_allocation]
        return {
            "format": FORMAT,
            "time_us": [round(event.time_us - self.events[0].time_us, 3) for event in self.events],
            "allocations": {
                "bytes": [event.size for event in allocations],
                "made": list(release_of_allocation),
                "freed": list(release_of_allocation.values()),
                "range": [range_of_event[number] for number in release_of_allocation],
                "operator": [event.operator for event in allocations],
                "line": [event.line for event in allocations],
                "held": list(map(category_of_allocation.get, release_of_allocation)),
            },
            "ranges": {
                "name": [span.name for span in self.ranges],
                "inside": [span.enclosing for span in self.ranges],
                "opened": [span.first_event for span in self.ranges],
                "closed": [span.event_after for span in self.ranges],
            },
            "counters": self.counters,
            "cannot": self.not_recorded,
            "unmet": self.failed_allocation and vars(self.failed_allocation),
            "dtypes": self.dtypes,
        }


def pair_releases(events: list[AllocatorEvent]) -> tuple[dict[int, int | None], dict[int, int]]:
    """(releases, live), with numbers of events. `releases` has the release of each allocation, None if there is none;
    `live` has the allocations that are live at the end, by address. Releases of memory from before the recording are
    left out.

    Raises ValueError if an address is allocated twice: a release is missing."""
    releases: dict[int, int | None] = {}
    live: dict[int, int] = {}
    for number, event in enumerate(events):
        if not event.allocates:
            if event.address in live:
                releases[live.pop(event.address)] = number
        elif event.address in live:
            raise ValueError(f"event {number}: memory is allocated where an allocation is live; a release is missing")
        else:
            live[event.address] = number
            releases[number] = None
    return releases, live


def innermost_ranges(ranges: list[RecordedRange], count: int) -> list[int | None]:
    """The number of the innermost open range for each event; `ranges` are in the order in which they opened."""
    numbers: list[int | None] = [None] * count
    for number, span in enumerate(ranges):
        after = count if span.event_after is None else span.event_after  # an inner range overwrites those around it
        numbers[span.first_event : after] = [number] * (after - span.first_event)
    return numbers


def write_history(record: dict[str, Any], path: Path) -> None:
    """Writes the record as gzipped JSON, without the time of writing: equal records give equal files."""
    path.write_bytes(gzip.compress(json.dumps(record, allow_nan=False, separators=(",", ":")).encode(), mtime=0))
