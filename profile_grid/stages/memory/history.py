"""The history of a process's memory, read from disk: what was live when, in which ranges it was made, and its category.

An event is one allocation or release. State n is what is live after event n, so a range begins in the state before its
first event.

If something held an allocation at the end of the process, that is its category: parameters, gradients, optimizer state
or data. The category of any other allocation follows from when it was made and freed:

- communication (buckets, gathered parameters), if it was made in a range of communication and is no gradient by the
  rule below
- workspace, if it was never freed
- activation, if it was made in a forward pass or loss and was live when the backward pass of its step began
- gradient, if it was made in a backward pass, was live at its end and was freed later
- temporary otherwise
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cs336_model import ranges
from cs336_model.program.memory.history import FailedAllocation, RecordedRange
from profile_grid.tables.names import MEASURE, STEP

NO_RANGE_NUMBER = -1  # instead of the number of a range


@dataclass(frozen=True)
class AllocationHistory:
    """Allocations as columns, in the order in which they were made."""

    size_bytes: np.ndarray
    alloc_event: np.ndarray  # the event that allocated it
    free_event: np.ndarray  # the event that freed it; the number of events if it was never freed
    range_number: np.ndarray  # of the innermost range in which it was made; NO_RANGE_NUMBER for none
    operator: list[str | None]  # None if unknown
    line: list[str | None]  # of Python, which called the operator; None if unknown
    holder: list[str | None]  # the category of what held it at the end; None if unknown
    ranges: list[RecordedRange]  # all closed: one that was still open at the end counts as closed after the last event
    time_us: np.ndarray  # by event
    counters: dict[str, int | None]  # of the allocator and the driver
    not_seen: list[str]  # what this kind of recording cannot see
    failed_allocation: FailedAllocation | None = None
    dtypes: list[dict] = field(default_factory=list)  # of the first step: see cs336_model.program.memory.recording

    @property
    def event_count(self) -> int:
        return len(self.time_us)

    @cached_property
    def _paths(self) -> list[tuple[int, ...]]:
        """The path of each range, by its number. A range comes after the ranges around it."""
        paths: list[tuple[int, ...]] = []
        for number, span in enumerate(self.ranges):
            paths.append((*(paths[span.enclosing] if span.enclosing is not None else ()), number))
        return paths

    def path(self, number: int) -> tuple[int, ...]:
        """The numbers of the ranges around a range, the outermost first, and its own; () for NO_RANGE_NUMBER."""
        return () if number == NO_RANGE_NUMBER else self._paths[number]

    def names(self, number: int) -> list[str]:
        """The names of the ranges in the path of a range."""
        return [self.ranges[outer].name for outer in self.path(number)]

    def names_in_step(self, number: int) -> list[str]:
        """The names after the step in a range's path: first the phase. [] for a step itself, and outside of steps."""
        names = self.names(number)
        return names[names.index(STEP) + 1 :] if STEP in names else []

    def live_at(self, state: int) -> np.ndarray:
        """A mask: which allocations are live in this state."""
        return (self.alloc_event <= state) & (self.free_event > state)

    def measured_steps(self) -> list[int]:
        """The numbers of the ranges of the measured steps, in their order."""
        return [number for number in range(len(self.ranges)) if self.names(number)[-2:] == [MEASURE, STEP]]

    def phases_of(self, step: int) -> Iterator[tuple[str, RecordedRange]]:
        """Name and range of every phase of the step whose range has this number, in their order."""
        yield from ((span.name, span) for span in self.ranges if span.enclosing == step)


def read_history(path: Path) -> AllocationHistory | None:
    """The history in a file of the measured program (cs336_model.program.memory.history); None if the file has none."""
    record = json.loads(gzip.decompress(path.read_bytes()))
    return history_of(record) if record else None


def history_of(record: dict) -> AllocationHistory:
    """The history in a record of the measured program, as AllocatorRecording.as_record makes it."""
    event_count, columns = len(record["time_us"]), record["allocations"]
    range_columns = (record["ranges"][key] for key in ("name", "inside", "opened", "closed"))
    spans = [RecordedRange(*values) for values in zip(*range_columns, strict=True)]
    return AllocationHistory(
        size_bytes=np.array(columns["bytes"], dtype="int64"),
        alloc_event=np.array(columns["made"], dtype="int64"),
        free_event=np.array([event_count if event is None else event for event in columns["freed"]], dtype="int64"),
        range_number=np.array([number_of(number) for number in columns["range"]], dtype="int64"),
        operator=columns["operator"],
        line=columns["line"],
        holder=columns["held"],
        ranges=[replace(span, event_after=event_count) if span.event_after is None else span for span in spans],
        time_us=np.array(record["time_us"], dtype="float64"),
        counters=record["counters"],
        not_seen=record["cannot"],
        failed_allocation=record["unmet"] and FailedAllocation(**record["unmet"]),
        dtypes=record["dtypes"],
    )


def number_of(recorded: int | None) -> int:
    """NO_RANGE_NUMBER for None, by which a record says "no range"; other numbers stay."""
    return NO_RANGE_NUMBER if recorded is None else recorded


class Category(StrEnum):
    """What an allocation is for; in the order of figures and tables."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer state"
    ACTIVATIONS = "activations"
    TEMPORARY = "temporary"
    COMMUNICATION = "communication"
    WORKSPACE = "workspace"
    DATA = "data"


CATEGORIES = tuple(Category)
ACTIVATION_PHASES = (ranges.FORWARD, ranges.LOSS)  # in which activations are made


class Phase(NamedTuple):
    """The name of the phase in which a range is, and the range of the backward pass of the same step, if any."""

    name: str
    backward: RecordedRange | None


NO_PHASE = Phase("", None)  # for what is in no phase


def categories_of(history: AllocationHistory) -> np.ndarray:
    """The category of each allocation, as its index in CATEGORIES."""
    phases = phase_by_range(history)
    categories = []
    for allocation, holder in enumerate(history.holder):
        phase = phases.get(int(history.range_number[allocation]), NO_PHASE)
        category = Category(holder) if holder else _category_by_life(history, allocation, phase)
        categories.append(CATEGORIES.index(category))
    return np.array(categories, dtype="int64")


def category_names(categories: np.ndarray) -> list[str]:
    """The names of categories that are given by their index in CATEGORIES."""
    return [str(CATEGORIES[index]) for index in categories]


def _category_by_life(history: AllocationHistory, allocation: int, phase: Phase) -> Category:
    """The category of an allocation that was made in this phase and that nothing held at the end."""
    free_event, backward = history.free_event[allocation], phase.backward
    is_freed = free_event < history.event_count
    outlives_backward = backward is not None and phase.name == ranges.BACKWARD and free_event >= backward.event_after
    if any(name.startswith(ranges.COMMUNICATION) for name in history.names(int(history.range_number[allocation]))):
        return Category.GRADIENTS if outlives_backward and is_freed else Category.COMMUNICATION
    if not is_freed:
        return Category.WORKSPACE
    if backward is not None and phase.name in ACTIVATION_PHASES and free_event >= backward.first_event:
        return Category.ACTIVATIONS
    return Category.GRADIENTS if outlives_backward else Category.TEMPORARY


def phase_by_range(history: AllocationHistory) -> dict[int, Phase]:
    """The phase of each range inside a step, by the number of the range."""
    backward_by_step = {span.enclosing: span for span in history.ranges if span.name == ranges.BACKWARD}
    phases = {}
    for number in range(len(history.ranges)):
        if names := history.names_in_step(number):
            step = history.path(number)[-1 - len(names)]  # `names` are those after the step
            phases[number] = Phase(names[0], backward_by_step.get(step))
    return phases


def live_bytes(history: AllocationHistory, categories: np.ndarray) -> np.ndarray:
    """Live bytes by state and category, in the shape (events, categories): row n is state n."""
    changes = np.zeros((history.event_count + 1, len(CATEGORIES)), dtype="int64")
    np.add.at(changes, (history.alloc_event, categories), history.size_bytes)
    np.add.at(changes, (history.free_event, categories), -history.size_bytes)  # never freed: in the row that is cut off
    return changes[:-1].cumsum(axis=0)
