"""The history of a process's memory: read from disk, looked up by event, range and step, and by purpose.

An event is one allocation or release; state n is what is live after event n, state -1 that before the first.

Parameters, gradients, optimizer state and data are known from what held an allocation at the end of the process. The
rest follows from when it was made and freed: never freed, it is a workspace; made in a forward pass or loss and live
when the backward pass of its step begins, an activation; made in a backward pass and live at its end, a gradient;
otherwise temporary. An allocation made in a range of communication is communication (buckets, flattened gradients,
gathered parameters), unless something holds it at the end or it is a gradient.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path

import numpy as np

from cs336_model import ranges
from cs336_model.program.memory.history import FailedAllocation
from profile_grid.tables.names import MEASURE, STEP

BLOCK = "block"


@dataclass(frozen=True)
class RangeSpan:
    """One range: the events from `first_event` until before `end_event`."""

    name: str
    parent: int | None  # number of the enclosing range
    first_event: int
    end_event: int


@dataclass(frozen=True)
class AllocationHistory:
    """Allocations as columns, in the order in which they were made."""

    size_bytes: np.ndarray
    alloc_event: np.ndarray  # the event that allocated it
    free_event: np.ndarray  # the event that freed it; the number of events if it was never freed
    range_number: np.ndarray  # of the innermost range; -1 for none
    operator: list[str | None]  # None if unknown
    line: list[str | None]  # of Python, which called the operator; None if unknown
    holder: list[str | None]  # what held it at the end, by its category; None if unknown
    ranges: list[RangeSpan]
    time_us: np.ndarray  # by event
    counters: dict[str, int | None]
    not_seen: list[str]  # what this kind of recording cannot see
    failed_allocation: FailedAllocation | None = None
    dtypes: list[dict] = field(default_factory=list)  # of the first step: cs336_model.program.memory.recording

    @property
    def event_count(self) -> int:
        return len(self.time_us)

    @cached_property
    def paths(self) -> list[tuple[int, ...]]:
        """For each range, the numbers of the open ranges, the outermost first, itself last."""
        paths: list[tuple[int, ...]] = []
        for number, span in enumerate(self.ranges):
            paths.append((*(paths[span.parent] if span.parent is not None else ()), number))
        return paths

    def names(self, number: int) -> list[str]:
        """The names of the path of a range; [] outside of all."""
        return [self.ranges[range_number].name for range_number in self.paths[number]] if number >= 0 else []

    def live_at(self, state: int) -> np.ndarray:
        """Mask of the allocations that are live in this state."""
        return (self.alloc_event <= state) & (self.free_event > state)

    def measured_steps(self) -> list[int]:
        """The numbers of the ranges of the measured steps, in their order."""
        steps = [(number, span) for number, span in enumerate(self.ranges) if span.name == STEP]
        return [
            number for number, span in steps if span.parent is not None and self.ranges[span.parent].name == MEASURE
        ]

    def phases_of(self, step: int) -> Iterator[tuple[str, RangeSpan]]:
        """Name and range of every phase of a step, in their order."""
        yield from ((span.name, span) for span in self.ranges if span.parent == step)


def read_history(path: Path) -> AllocationHistory | None:
    """The history in a file of the measured program (cs336_model.program.memory.history); None if it has none."""
    record = json.loads(gzip.decompress(path.read_bytes()))
    return history_of(record) if record else None


def history_of(record: dict) -> AllocationHistory:
    """The history in a record of the measured program."""
    event_count, columns, ranges = len(record["time_us"]), record["allocations"], record["ranges"]
    spans = zip(ranges["name"], ranges["inside"], ranges["opened"], ranges["closed"], strict=True)
    return AllocationHistory(
        size_bytes=np.array(columns["bytes"], dtype="int64"),
        alloc_event=np.array(columns["made"], dtype="int64"),
        free_event=np.array([event_count if event is None else event for event in columns["freed"]], dtype="int64"),
        range_number=np.array([-1 if number is None else number for number in columns["range"]], dtype="int64"),
        operator=columns["operator"],
        line=columns["line"],
        holder=columns["held"],
        ranges=[
            RangeSpan(name, parent, first, event_count if end is None else end) for name, parent, first, end in spans
        ],
        time_us=np.array(record["time_us"], dtype="float64"),
        counters=record["counters"],
        not_seen=record["cannot"],
        failed_allocation=record["unmet"] and FailedAllocation(**record["unmet"]),
        dtypes=record["dtypes"],
    )


class Category(StrEnum):
    """The categories, in the order of figures and tables."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer state"
    ACTIVATIONS = "activations"
    TEMPORARY = "temporary"
    COMMUNICATION = "communication"
    WORKSPACE = "workspace"
    DATA = "data"


CATEGORIES = tuple(Category)
ACTIVATION_PHASES = (ranges.FORWARD, ranges.LOSS)  # that allocate activations


def categories_of(history: AllocationHistory) -> np.ndarray:
    """The index in CATEGORIES for each allocation."""
    phases = phases_and_backward(history)
    categories = []
    for allocation, holder in enumerate(history.holder):
        phase, backward = phases.get(int(history.range_number[allocation]), ("", None))
        category = Category(holder) if holder else _category_by_life(history, allocation, phase, backward)
        categories.append(CATEGORIES.index(category))
    return np.array(categories, dtype="int64")


def category_names(categories: np.ndarray) -> list[str]:
    """The names of these categories."""
    return [str(CATEGORIES[index]) for index in categories]


def _category_by_life(history: AllocationHistory, allocation: int, phase: str, backward: RangeSpan | None) -> Category:
    """The category of an allocation that nothing held at the end; `backward` is the backward pass of its step."""
    free_event = history.free_event[allocation]
    is_freed = free_event < history.event_count
    outlives_backward = backward is not None and phase == ranges.BACKWARD and free_event >= backward.end_event
    if any(name.startswith(ranges.COMMUNICATION) for name in history.names(int(history.range_number[allocation]))):
        return Category.GRADIENTS if outlives_backward and is_freed else Category.COMMUNICATION
    if not is_freed:
        return Category.WORKSPACE
    if backward is not None and phase in ACTIVATION_PHASES and free_event >= backward.first_event:
        return Category.ACTIVATIONS
    return Category.GRADIENTS if outlives_backward else Category.TEMPORARY


def phases_and_backward(history: AllocationHistory) -> dict[int, tuple[str, RangeSpan | None]]:
    """For each range inside a step, by number: the name of its phase, and the backward pass of its step, if any."""
    backward = {span.parent: span for span in history.ranges if span.name == ranges.BACKWARD}
    phases = {}
    for number, path in enumerate(history.paths):
        names = history.names(number)
        if STEP in names[:-1]:
            step_index = names.index(STEP)
            phases[number] = (names[step_index + 1], backward.get(path[step_index]))
    return phases


def live_bytes(history: AllocationHistory, categories: np.ndarray) -> np.ndarray:
    """Live bytes by state and category, shape (events, categories): row n is state n."""
    changes = np.zeros((history.event_count + 1, len(CATEGORIES)), dtype="int64")
    np.add.at(changes, (history.alloc_event, categories), history.size_bytes)
    np.add.at(changes, (history.free_event, categories), -history.size_bytes)  # never freed: after the last event
    return changes[:-1].cumsum(axis=0)
