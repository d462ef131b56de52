"""The history of a process's memory: read from disk, looked up by event, range and step, and by purpose.

An event is one allocation or release; state n is what is live after event n, state -1 that before the first.

Parameters, gradients, optimizer state and data are known from what held an allocation at the end of the process. The
rest follows from when it was made and freed: made in a forward pass or loss and live when the backward pass of its step
begins, it is an activation; made in a backward pass and live at its end, a gradient; never freed, a workspace;
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
    """One range: events `opened` to `closed`, not including `closed`."""

    name: str
    inside: int | None  # number of the enclosing range
    opened: int
    closed: int


@dataclass(frozen=True)
class AllocationHistory:
    """Allocations as columns, in the order in which they were made."""

    size: np.ndarray  # bytes
    made: np.ndarray  # the event that allocated it
    freed: np.ndarray  # the event that freed it; the number of events if it was never freed
    range: np.ndarray  # number of the innermost range; -1 for none
    operator: list[str | None]  # None if unknown
    line: list[str | None]  # of Python, which called the operator; None if unknown
    held: list[str | None]  # what held it at the end; None if unknown
    ranges: list[RangeSpan]
    time_us: np.ndarray
    counters: dict[str, int | None]
    cannot: list[str]
    unmet: FailedAllocation | None = None
    dtypes: list[dict] = field(default_factory=list)  # of the first step: cs336_model.program.memory.recording

    @property
    def events(self) -> int:
        """The number of events."""
        return len(self.time_us)

    @cached_property
    def paths(self) -> list[tuple[int, ...]]:
        """For each range the numbers of the open ranges, the outermost first, itself last."""
        paths: list[tuple[int, ...]] = []
        for number, span in enumerate(self.ranges):
            paths.append((*(paths[span.inside] if span.inside is not None else ()), number))
        return paths

    def names(self, number: int) -> list[str]:
        """The names of the path of a range; [] outside of all."""
        return [self.ranges[outer].name for outer in self.paths[number]] if number >= 0 else []

    def live_at(self, state: int) -> np.ndarray:
        """Mask of the allocations that are live in this state."""
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
    """The history in a file of the measured program (cs336_model.program.memory.history); None if it has none."""
    record = json.loads(gzip.decompress(path.read_bytes()))
    return history_of(record) if record else None


def history_of(record: dict) -> AllocationHistory:
    """The history in a record of the measured program."""
    events, columns, ranges = len(record["time_us"]), record["allocations"], record["ranges"]
    rows = zip(ranges["name"], ranges["inside"], ranges["opened"], ranges["closed"], strict=True)
    return AllocationHistory(
        size=np.array(columns["bytes"], dtype="int64"),
        made=np.array(columns["made"], dtype="int64"),
        freed=np.array([events if value is None else value for value in columns["freed"]], dtype="int64"),
        range=np.array([-1 if value is None else value for value in columns["range"]], dtype="int64"),
        operator=columns["operator"],
        line=columns["line"],
        held=columns["held"],
        ranges=[RangeSpan(name, inside, start, events if end is None else end) for name, inside, start, end in rows],
        time_us=np.array(record["time_us"], dtype="float64"),
        counters=record["counters"],
        cannot=record["cannot"],
        unmet=record["unmet"] and FailedAllocation(**record["unmet"]),
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
MAKING_ACTIVATIONS = (ranges.FORWARD, ranges.LOSS)


def categories_of(history: AllocationHistory) -> np.ndarray:
    """The index in CATEGORIES for each allocation."""
    phases = phases_and_backward(history)
    categories = []
    for number, holder in enumerate(history.held):
        phase, backward = phases.get(int(history.range[number]), ("", None))
        categories.append(CATEGORIES.index(Category(holder) if holder else _by_life(history, number, phase, backward)))
    return np.array(categories, dtype="int64")


def names_of(category: np.ndarray) -> list[str]:
    """The names of these categories."""
    return [str(CATEGORIES[number]) for number in category]


def _by_life(history: AllocationHistory, number: int, phase: str, backward: RangeSpan | None) -> Category:
    """The category of an allocation that nothing held at the end; `backward` is the backward pass of its step."""
    freed = history.freed[number]
    if any(name.startswith(ranges.COMMUNICATION) for name in history.names(int(history.range[number]))):
        is_gradient = backward is not None and phase == ranges.BACKWARD and backward.closed <= freed < history.events
        return Category.GRADIENTS if is_gradient else Category.COMMUNICATION
    if freed >= history.events:
        return Category.WORKSPACE
    if backward is not None and phase in MAKING_ACTIVATIONS and freed >= backward.opened:
        return Category.ACTIVATIONS
    if backward is not None and phase == ranges.BACKWARD and freed >= backward.closed:
        return Category.GRADIENTS
    return Category.TEMPORARY


def phases_and_backward(history: AllocationHistory) -> dict[int, tuple[str, RangeSpan | None]]:
    """For each range in a step: the name of its phase, and the backward pass of its step, if any."""
    backward = {span.inside: span for span in history.ranges if span.name == ranges.BACKWARD}
    phases = {}
    for number, path in enumerate(history.paths):
        names = history.names(number)
        if STEP in names[:-1]:
            step_index = names.index(STEP)
            phases[number] = (names[step_index + 1], backward.get(path[step_index]))
    return phases


def live_bytes(history: AllocationHistory, category: np.ndarray) -> np.ndarray:
    """Live bytes by state and category, shape (events, categories): row n is state n."""
    change = np.zeros((history.events + 1, len(CATEGORIES)), dtype="int64")
    np.add.at(change, (history.made, category), history.size)
    np.add.at(change, (history.freed, category), -history.size)  # never freed: after the last event
    return change[:-1].cumsum(axis=0)
