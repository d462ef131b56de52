"""The history of a process's memory: read from disk, looked up by event, range and step, and by purpose.

An event is one allocation or release. State n is what is live after event n, so a range begins in the state before its
first event.

Parameters, gradients, optimizer state and data are known from what held an allocation at the end of the process. The
rest follows from when it was made and freed: never freed, it is a workspace; made in a forward pass or loss and live
when the backward pass of its step begins, an activation; made in a backward pass and live at its end, a gradient;
otherwise temporary. An allocation made in a range of communication is communication (buckets, flattened gradients,
gathered parameters), unless something holds it at the end or it is a gradient.
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

BLOCK = "block"
NO_RANGE_NUMBER = -1  # instead of the number of a range


@dataclass(frozen=True)
class AllocationHistory:
    """Allocations as columns, in the order in which they were made."""

    size_bytes: np.ndarray
    alloc_event: np.ndarray  # the event that allocated it
    free_event: np.ndarray  # the event that freed it; the number of events if it was never freed
    range_number: np.ndarray  # of the innermost range; NO_RANGE_NUMBER for none
    operator: list[str | None]  # None if unknown
    line: list[str | None]  # of Python, which called the operator; None if unknown
    holder: list[str | None]  # the category of what held it at the end; None if unknown
    ranges: list[RecordedRange]  # all closed: those that never were, after the last event
    time_us: np.ndarray  # by event
    counters: dict[str, int | None]
    not_seen: list[str]  # what this kind of recording cannot see
    failed_allocation: FailedAllocation | None = None
    dtypes: list[dict] = field(default_factory=list)  # of the first step: cs336_model.program.memory.recording

    @property
    def event_count(self) -> int:
        return len(self.time_us)

    @cached_property
    def _paths(self) -> list[tuple[int, ...]]:
        """`path` by number."""
        paths: list[tuple[int, ...]] = []
        for number, span in enumerate(self.ranges):
            paths.append((*(paths[span.enclosing] if span.enclosing is not None else ()), number))
        return paths

    def path(self, number: int) -> tuple[int, ...]:
        """The numbers of the ranges around a range, the outermost first, and its own; () for NO_RANGE_NUMBER."""
        return () if number == NO_RANGE_NUMBER else self._paths[number]

    def names(self, number: int) -> list[str]:
        """The names of the path of a range."""
        return [self.ranges[outer].name for outer in self.path(number)]

    def names_in_step(self, number: int) -> list[str]:
        """The names in the path of a range after its step: first the phase; [] for a step, and outside of steps."""
        names = self.names(number)
        return names[names.index(STEP) + 1 :] if STEP in names else []

    def live_at(self, state: int) -> np.ndarray:
        """Mask of the allocations that are live in this state."""
        return (self.alloc_event <= state) & (self.free_event > state)

    def measured_steps(self) -> list[int]:
        """The numbers of the ranges of the measured steps, in their order."""
        return [number for number in range(len(self.ranges)) if self.names(number)[-2:] == [MEASURE, STEP]]

    def phases_of(self, step: int) -> Iterator[tuple[str, RecordedRange]]:
        """Name and range of every phase of a step, in their order."""
        yield from ((span.name, span) for span in self.ranges if span.enclosing == step)


def read_history(path: Path) -> AllocationHistory | None:
    """The history in a file of the measured program (cs336_model.program.memory.history); None if it has none."""
    record = json.loads(gzip.decompress(path.read_bytes()))
    return history_of(record) if record else None


def history_of(record: dict) -> AllocationHistory:
    """The history in a record of the measured program, whose keys AllocatorRecording.as_record explains."""
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
    """The number of a range as a record has it, which is None for no range."""
    return NO_RANGE_NUMBER if recorded is None else recorded


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


class Phase(NamedTuple):
    """The phase of a range, and the backward pass of its step, if any."""

    name: str
    backward: RecordedRange | None


NO_PHASE = Phase("", None)  # of what is not inside a step


def categories_of(history: AllocationHistory) -> np.ndarray:
    """The index in CATEGORIES for each allocation."""
    phases = phase_by_range(history)
    categories = []
    for allocation, holder in enumerate(history.holder):
        phase = phases.get(int(history.range_number[allocation]), NO_PHASE)
        category = Category(holder) if holder else _category_by_life(history, allocation, phase)
        categories.append(CATEGORIES.index(category))
    return np.array(categories, dtype="int64")


def category_names(categories: np.ndarray) -> list[str]:
    """The names of these categories."""
    return [str(CATEGORIES[index]) for index in categories]


def _category_by_life(history: AllocationHistory, allocation: int, phase: Phase) -> Category:
    """The category of an allocation, made in this phase, that nothing held at the end."""
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
            step = history.path(number)[-1 - len(names)]
            phases[number] = Phase(names[0], backward_by_step.get(step))
    return phases


def live_bytes(history: AllocationHistory, categories: np.ndarray) -> np.ndarray:
    """Live bytes by state and category, shape (events, categories): row n is state n."""
    changes = np.zeros((history.event_count + 1, len(CATEGORIES)), dtype="int64")
    np.add.at(changes, (history.alloc_event, categories), history.size_bytes)
    np.add.at(changes, (history.free_event, categories), -history.size_bytes)  # never freed: after the last event
    return changes[:-1].cumsum(axis=0)
