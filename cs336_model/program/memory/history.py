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
ALLOCATED_BEFORE = -1  # the allocation of a release came before the recording


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
    """One range."""

    name: str
    inside: int | None  # number of the enclosing range; None outside of all
    opened: int  # its first event
    closed: int | None = None  # the first event after it
    failed: bool = False  # whether an error ended it


@dataclass(frozen=True)
class FailedAllocation:
    """A request for memory that the device did not have."""

    event: int  # number of earlier events
    requested_bytes: int
    free_bytes: int | None
    range: int | None  # the innermost range that it ended; None outside of all, or if the program went on


@dataclass
class AllocatorRecording:
    """All events and ranges of a process, and its state at the end."""

    events: list[AllocatorEvent]
    ranges: list[RecordedRange]
    held: Mapping[str, Iterable[int]]  # addresses of storages by category
    counters: dict[str, int | None]  # of the allocator
    cannot: list[str] = field(default_factory=list)  # what this kind of recording does not see
    unmet: FailedAllocation | None = None  # the last request that failed
    dtypes: list[dict[str, Any]] = field(default_factory=list)  # of the first step (recording.py)

    def as_record(self) -> dict[str, Any]:
        """The history as written: allocations instead of addresses, columns instead of rows."""
        allocations, live = paired(self.events)
        category = {
            live[address]: name for name, addresses in self.held.items() for address in addresses if address in live
        }
        inside = innermost(self.ranges, len(self.events))
        return {
            "format": FORMAT,
            "time_us": [round(event.time_us - self.events[0].time_us, 3) for event in self.events],
            "allocations": {
                "bytes": [self.events[allocated].size for allocated, _ in allocations],
                "made": [allocated for allocated, _ in allocations],
                "freed": [freed for _, freed in allocations],
                "range": [inside[allocated] for allocated, _ in allocations],
                "operator": [self.events[allocated].operator for allocated, _ in allocations],
                "line": [self.events[allocated].line for allocated, _ in allocations],
                "held": [category.get(allocated) for allocated, _ in allocations],
            },
            "ranges": {
                name: [getattr(span, name) for span in self.ranges] for name in ("name", "inside", "opened", "closed")
            },
            "counters": self.counters,
            "cannot": self.cannot,
            "unmet": self.unmet and vars(self.unmet),
            "dtypes": self.dtypes,
        }


def paired(events: list[AllocatorEvent]) -> tuple[list[tuple[int, int | None]], dict[int, int]]:
    """(allocations, live): for each allocation the numbers of its event and of its release (None if never released);
    and the allocations that are live at the end, address to event. Releases of earlier memory are left out.

    Raises ValueError if an address is allocated twice: a release is missing."""
    allocations: list[list[int | None]] = []
    live: dict[int, int] = {}
    for number, event in enumerate(events):
        if not event.allocates:
            position = live.pop(event.address, ALLOCATED_BEFORE)
            if position != ALLOCATED_BEFORE:
                allocations[position][1] = number
        elif event.address in live:
            raise ValueError(f"event {number}: memory is allocated where an allocation is live; a release is missing")
        else:
            live[event.address] = len(allocations)
            allocations.append([number, None])
    live_events = {address: allocations[position][0] for address, position in live.items()}
    return [(allocated, freed) for allocated, freed in allocations], live_events


def innermost(ranges: list[RecordedRange], count: int) -> list[int | None]:
    """The number of the innermost open range for each event; `ranges` are in the order in which they opened."""
    numbers: list[int | None] = [None] * count
    for number, span in enumerate(ranges):
        end = count if span.closed is None else span.closed
        numbers[span.opened : end] = [number] * (end - span.opened)
    return numbers


def write(record: dict[str, Any], path: Path) -> None:
    """Writes the record as packed JSON, which does not contain the time of packing."""
    path.write_bytes(gzip.compress(json.dumps(record, allow_nan=False, separators=(",", ":")).encode(), mtime=0))
