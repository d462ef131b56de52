"""The history of a process's memory, as a run has it on disk: read, and looked up by event, range and step.

An event is one allocation or release; state n is what is live after event n, state -1 that before the first.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from profile_grid.tables.names import MEASURE, STEP

BLOCK = "block"


@dataclass(frozen=True)
class RangeSpan:
    """One range: events `opened` to `closed`, the latter not included."""

    name: str
    inside: int | None  # number of the range around it
    opened: int
    closed: int


@dataclass(frozen=True)
class FailedAllocationRecord:
    """The last request for memory that failed."""

    event: int  # how many events came before it
    requested_bytes: int
    free_bytes: int | None
    range: int | None  # number of the innermost range


@dataclass(frozen=True)
class AllocationHistory:
    """Allocations as columns, in the order in which they were made."""

    size: np.ndarray  # bytes
    made: np.ndarray  # the event that allocated it
    freed: np.ndarray  # the event that freed it; the number of events if none did
    range: np.ndarray  # number of the innermost range; -1 for none
    operator: list[str | None]  # None if not known
    held: list[str | None]  # what held it at the end; None if not known
    ranges: list[RangeSpan]
    time_us: np.ndarray
    counters: dict[str, int | None]
    cannot: list[str]
    unmet: FailedAllocationRecord | None = None

    @property
    def events(self) -> int:
        """How many events there are."""
        return len(self.time_us)

    @cached_property
    def paths(self) -> list[tuple[int, ...]]:
        """Per range the numbers of all that are open in it, the outermost first, itself last."""
        paths: list[tuple[int, ...]] = []
        for number, span in enumerate(self.ranges):
            paths.append((*(paths[span.inside] if span.inside is not None else ()), number))
        return paths

    def names(self, number: int) -> list[str]:
        """The names of the path of a range; none outside of all."""
        return [self.ranges[outer].name for outer in self.paths[number]] if number >= 0 else []

    def live_at(self, state: int) -> np.ndarray:
        """Which allocations are live in this state, as a mask."""
        return (self.made <= state) & (self.freed > state)

    def measured_steps(self) -> list[int]:
        """The numbers of the ranges of the measured steps, in their order."""
        return [number for number, span in enumerate(self.ranges) if span.name == STEP and self._is_measured(span)]

    def phases_of(self, step: int) -> Iterator[tuple[str, RangeSpan]]:
        """Name and range of every phase of a step, in their order."""
        yield from ((span.name, span) for span in self.ranges if span.inside == step)

    def _is_measured(self, span: RangeSpan) -> bool:
        return span.inside is not None and self.ranges[span.inside].name == MEASURE


def read_history(path: Path) -> AllocationHistory | None:
    """The history in a file that the measured program wrote (cs336_model.program.memory.history); None where it ended
    without one."""
    record = json.loads(gzip.decompress(path.read_bytes()))
    return history_of(record) if record else None


def history_of(record: dict) -> AllocationHistory:
    """The history in such a record."""
    events, columns, ranges = len(record["time_us"]), record["allocations"], record["ranges"]
    rows = zip(ranges["name"], ranges["inside"], ranges["opened"], ranges["closed"], strict=True)
    return AllocationHistory(
        size=np.array(columns["bytes"], dtype="int64"),
        made=np.array(columns["made"], dtype="int64"),
        freed=np.array([events if value is None else value for value in columns["freed"]], dtype="int64"),
        range=np.array([-1 if value is None else value for value in columns["range"]], dtype="int64"),
        operator=columns["operator"],
        held=columns["held"],
        ranges=[RangeSpan(name, inside, start, events if end is None else end) for name, inside, start, end in rows],
        time_us=np.array(record["time_us"], dtype="float64"),
        counters=record["counters"],
        cannot=record["cannot"],
        unmet=record["unmet"] and FailedAllocationRecord(**record["unmet"]),
    )
