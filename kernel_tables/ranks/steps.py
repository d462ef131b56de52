"""The measured steps of a rank on one of its devices: their windows and their parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kernel_tables.diagnosis.devices import PARTS
from kernel_tables.diagnosis.scope import NO_STEP, Scope
from kernel_tables.errors import NotConserved
from kernel_tables.intervals import Intervals, covered_ns, difference, intersection, union
from kernel_tables.ranks.ranks import RankTrace

COMMUNICATION = "communication"  # a class of kernels
OVERLAPPED = "overlapped communication"


class StepWindows(NamedTuple):
    """When every step of a rank began and ended on a device."""

    begin_ns: np.ndarray
    end_ns: np.ndarray


@dataclass(frozen=True)
class DeviceSteps:
    """The steps of a rank on one device. Arrays are by step, or masks over the activities of its trace."""

    rank: RankTrace
    device: int
    step_name: str = "step"

    @cached_property
    def scope(self) -> Scope:
        return Scope(self.rank.trace, self.step_name)

    @cached_property
    def is_here(self) -> np.ndarray:
        """Whether this rank ran the activity on this device, in a step or not."""
        return self.rank.is_of_process & (self.rank.trace.places["device"] == self.device)

    @cached_property
    def is_communication(self) -> np.ndarray:
        """Whether the activity is communication on this device."""
        return self.is_here & self.scope.of_class(COMMUNICATION)

    @cached_property
    def is_compute(self) -> np.ndarray:
        """Whether the activity is a kernel on this device that is not communication."""
        return self.is_here & self.scope.is_kernel & ~self.is_communication

    @cached_property
    def step(self) -> np.ndarray:
        """By activity: the number of the step that launched it; NO_STEP outside steps, and for other ranks."""
        steps = self.rank.steps(self.step_name)
        number = np.full(len(self.rank.trace.range_arrays) + 1, NO_STEP)  # the last entry serves activities in no range
        number[steps] = np.arange(len(steps))
        return np.where(self.is_here, number[self.rank.trace.enclosing(self.step_name)], NO_STEP)

    @cached_property
    def windows(self) -> StepWindows:
        """The window of every step on this device.

        It is the range of the step if all that it launched here ran inside it: the program waited for the device. If
        the program runs ahead, a step lasts from the start of its first activity here to that of the next step; the
        last one to the end of all activities of the steps.
        """
        ranges, steps, activities = self.rank.trace.range_arrays, self.rank.steps(self.step_name), self.scope.activities
        windows = StepWindows(ranges.start_ns[steps], ranges.end_ns[steps])
        rows = np.flatnonzero(self.step != NO_STEP)
        start_ns, end_ns, step = activities.start_ns[rows], activities.end_ns[rows], self.step[rows]
        if (windows.begin_ns[step] <= start_ns).all() and (end_ns <= windows.end_ns[step]).all():
            return windows
        last = int(end_ns.max())
        first = np.full(len(steps), last)
        np.minimum.at(first, step, start_ns)
        first = np.minimum.accumulate(first[::-1])[::-1]  # a step without work here lasts no time
        return StepWindows(first, np.append(first[1:], last))

    @property
    def length_ns(self) -> np.ndarray:
        """The length of every step."""
        return self.windows.end_ns - self.windows.begin_ns

    def during(self, mask: np.ndarray) -> Intervals:
        """The time in which at least one activity of `mask` ran."""
        activities = self.scope.activities
        return union(activities.start_ns[mask], activities.end_ns[mask])

    def parts_ns(self) -> dict[str, np.ndarray]:
        """The length of every step by PARTS, and the communication that overlaps with computation.

        Computation has priority, then communication, then memory operations. Raises NotConserved unless the parts add
        up to the step, to the nanosecond.
        """
        compute, communication = self.during(self.is_compute), self.during(self.is_communication)
        memory = difference(self.during(self.is_here & self.scope.is_memory), compute, communication)
        busy = (compute, difference(communication, compute), memory)
        idle_ns = self.length_ns - covered_ns(self.during(self.is_here), *self.windows)
        parts = dict(zip(PARTS, (*(covered_ns(part, *self.windows) for part in busy), idle_ns), strict=True))
        if (sum(parts.values()) != self.length_ns).any():
            raise NotConserved(
                f"the parts of a step of rank {self.rank.number} on device {self.device} are not its length"
            )
        return parts | {OVERLAPPED: covered_ns(intersection(communication, compute), *self.windows)}


def device_steps(ranks: Sequence[RankTrace], step_name: str) -> list[DeviceSteps]:
    """The steps of every rank on each of its devices."""
    return [DeviceSteps(rank, device, step_name) for rank in ranks for device in rank.devices]
