"""The measured steps of a rank on one of its devices: when each is, and what fills it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernel_tables.diagnosis.devices import PARTS
from kernel_tables.diagnosis.scope import NO_STEP, Scope
from kernel_tables.errors import NotConserved
from kernel_tables.intervals import Intervals, covered_ns, difference, intersection, union
from kernel_tables.ranks.ranks import Rank

COMMUNICATION = "communication"  # the class of kernels that do nothing else
OVERLAPPED = "overlapped communication"


@dataclass(frozen=True)
class DeviceSteps:
    """The steps of a rank on one device; arrays by step are in the order of their numbers, from 0."""

    rank: Rank
    device: int
    step_name: str = "step"

    @cached_property
    def scope(self) -> Scope:
        return Scope(self.rank.trace, self.step_name)

    @cached_property
    def is_here(self) -> np.ndarray:
        """By activity of the trace: whether this rank ran it on this device, in a step or not."""
        return self.rank.is_own & (self.rank.trace.places["device"] == self.device)

    @cached_property
    def is_communication(self) -> np.ndarray:
        """By activity: whether it is communication on this device."""
        return self.is_here & self.scope.of_class(COMMUNICATION)

    @cached_property
    def is_compute(self) -> np.ndarray:
        """By activity: whether it is a kernel on this device that is no communication."""
        return self.is_here & self.scope.is_kernel & ~self.is_communication

    @cached_property
    def step(self) -> np.ndarray:
        """By activity: the number of the rank's step that launched it; NO_STEP outside, and for other ranks."""
        steps = self.rank.steps(self.step_name)
        number = np.full(len(self.rank.trace.range_arrays) + 1, NO_STEP)  # the last entry serves what is in no range
        number[steps] = np.arange(len(steps))
        return np.where(self.is_here, number[self.rank.trace.enclosing(self.step_name)], NO_STEP)

    @cached_property
    def windows(self) -> tuple[np.ndarray, np.ndarray]:
        """The begin and the end of every step on this device.

        It is the step's own range where all that it launched here ran inside it: the program waited for the device. Of
        a program that runs ahead, a step lasts from the start of the first thing that it launched here to that of the
        next step's; the last one to the end of what the steps launched.
        """
        ranges, steps, found = self.rank.trace.range_arrays, self.rank.steps(self.step_name), self.scope.activities
        begin, end = ranges.start_ns[steps], ranges.end_ns[steps]
        rows = np.flatnonzero(self.step != NO_STEP)
        start_ns, end_ns, step = found.start_ns[rows], found.end_ns[rows], self.step[rows]
        if (begin[step] <= start_ns).all() and (end_ns <= end[step]).all():
            return begin, end
        last = int(end_ns.max())
        first = np.full(len(steps), last)
        np.minimum.at(first, step, start_ns)
        first = np.minimum.accumulate(first[::-1])[::-1]  # a step without work here lasts no time
        return first, np.append(first[1:], last)

    @property
    def length_ns(self) -> np.ndarray:
        """By step: how long it lasted."""
        begin, end = self.windows
        return end - begin

    def during(self, mask: np.ndarray) -> Intervals:
        """The time in which at least one activity of MASK ran."""
        found = self.scope.activities
        return union(found.start_ns[mask], found.end_ns[mask])

    def parts_ns(self) -> dict[str, np.ndarray]:
        """By step: its length by PARTS, and the communication that computation runs beside.

        What computes comes first, then what only communicates, then what only moves memory. Raises NotConserved unless
        the parts add up to the step, to the nanosecond.
        """
        compute, communication = self.during(self.is_compute), self.during(self.is_communication)
        of_memory = difference(self.during(self.is_here & self.scope.is_memory), compute, communication)
        covered = self.during(self.is_here)
        shown = (compute, difference(communication, compute), of_memory)
        filled = [covered_ns(part, *self.windows) for part in shown]
        idle = self.length_ns - covered_ns(covered, *self.windows)
        parts = dict(zip(PARTS, (*filled, idle), strict=True))
        if (sum(parts.values()) != self.length_ns).any():
            raise NotConserved(
                f"the parts of a step of rank {self.rank.number} on device {self.device} are not its length"
            )
        return parts | {OVERLAPPED: covered_ns(intersection(communication, compute), *self.windows)}


def device_steps(ranks: Sequence[Rank], step_name: str) -> list[DeviceSteps]:
    """The steps of every rank on each of its devices."""
    return [DeviceSteps(rank, device, step_name) for rank in ranks for device in rank.devices]
