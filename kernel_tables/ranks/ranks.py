"""The ranks of a run: the processes that worked on a device, of one capture or of several.

A run on several GPUs has a process for each. nsys captures each in its own file, or all of them in one file, where
their correlation ids collide; both work. Every capture has its own clock, so no duration may span two of them.

A rank has measured steps on each of its devices. Their time is divided into parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.steps import measured_steps
from kernel_tables.diagnosis.devices import PARTS
from kernel_tables.diagnosis.scope import NO_STEP, Scope
from kernel_tables.errors import NotConserved
from kernel_tables.intervals import Intervals, covered_ns, difference, intersection, union
from kernel_tables.reading.schema import MISSING, RANK_KEY, RANKS_KEY

COMMUNICATION = "communication"  # a class of kernels
OVERLAPPED = "overlapped communication"  # a key of parts_ns


@dataclass(frozen=True)
class RankTrace:
    """One process of a run. Masks are over the activities of its trace, which may contain other processes, too."""

    number: int
    trace: CaptureArrays
    process: int  # global id; in a capture without work, that of the first range, MISSING if there is none

    @cached_property
    def is_of_process(self) -> np.ndarray:
        """By activity: whether this process launched it."""
        return self.trace.gpu_activities.process == self.process

    @cached_property
    def devices(self) -> list[int]:
        """The numbers of its devices in its capture; -1 for the CPU."""
        return np.unique(self.trace.places["device"][self.is_of_process]).tolist()

    def steps(self, step_name: str) -> np.ndarray:
        """The numbers of the ranges that are its measured steps, in order of time.

        Steps without work are included, so that steps of several ranks can be matched by number.
        """
        steps = measured_steps(self.trace, step_name)
        return steps[self.trace.range_arrays.process[steps] == self.process]


def ranks_of(traces: Sequence[CaptureArrays]) -> list[RankTrace]:
    """The ranks: numbered as the captures say, if each contains one process and names its rank; else in the order of
    the captures, within one by device, then by process.

    A capture in which nothing ran on a device counts as one rank, so that later ones keep their numbers.
    """
    ids_by_trace = [(trace, processes_with_work(trace) or [_first_process(trace)]) for trace in traces]
    processes = [(trace, process) for trace, ids in ids_by_trace for process in ids]
    stated_numbers = numbers_in_run(traces) if len(processes) == len(traces) else None
    numbers = stated_numbers or range(len(processes))
    ranks = [RankTrace(number, trace, process) for number, (trace, process) in zip(numbers, processes, strict=True)]
    return sorted(ranks, key=lambda rank: rank.number)


def numbers_in_run(traces: Sequence[CaptureArrays]) -> list[int] | None:
    """The rank that each capture names; None if one names none, or two name the same."""
    texts = [trace.metadata.get(RANK_KEY, "") for trace in traces]
    numbers = [int(text) for text in texts if text.isascii() and text.isdigit()]
    return numbers if len(set(numbers)) == len(texts) else None


def ranks_in_run(ranks: Sequence[RankTrace]) -> int:
    """The number of ranks in the run, by the metadata of its captures, but at least the number of `ranks`."""
    counts = [rank.trace.metadata.get(RANKS_KEY, "") for rank in ranks]
    return max([len(ranks), *(int(count) for count in counts if count.isascii() and count.isdigit())])


def processes_with_work(trace: CaptureArrays) -> list[int]:
    """The global ids of the processes that ran something on a device, by their first device, then by number."""
    process, device = trace.gpu_activities.process, trace.places["device"]
    first = {number: int(device[process == number].min()) for number in np.unique(process).tolist()}
    return sorted(first, key=lambda number: (first[number], number))


def _first_process(trace: CaptureArrays) -> int:
    """The process of the first range, for a capture without work; MISSING without ranges."""
    return int(trace.range_arrays.process[0]) if len(trace.range_arrays) else MISSING


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
        """By activity: whether this rank ran it on this device, in a step or not."""
        return self.rank.is_of_process & (self.rank.trace.places["device"] == self.device)

    @cached_property
    def is_communication(self) -> np.ndarray:
        """By activity: whether it is communication on this device."""
        return self.is_here & self.scope.is_of_class(COMMUNICATION)

    @cached_property
    def is_compute(self) -> np.ndarray:
        """By activity: whether it is a kernel on this device, and not communication."""
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

        If all that the steps launched here ran inside their ranges, since the program waited for the device, the
        windows are these ranges. If the program runs ahead in any step, each window lasts from the start of the step's
        first activity here to the start of the next window, and the last one to the end of all activities of the steps.
        """
        ranges, steps, activities = self.rank.trace.range_arrays, self.rank.steps(self.step_name), self.scope.activities
        windows = StepWindows(ranges.start_ns[steps], ranges.end_ns[steps])
        rows = np.flatnonzero(self.step != NO_STEP)
        start_ns, end_ns, step = activities.start_ns[rows], activities.end_ns[rows], self.step[rows]
        if (windows.begin_ns[step] <= start_ns).all() and (end_ns <= windows.end_ns[step]).all():
            return windows
        last_ns = int(end_ns.max())
        begin_ns = np.full(len(steps), last_ns)
        np.minimum.at(begin_ns, step, start_ns)
        begin_ns = np.minimum.accumulate(begin_ns[::-1])[::-1]  # a step without work here has no duration
        return StepWindows(begin_ns, np.append(begin_ns[1:], last_ns))

    @property
    def length_ns(self) -> np.ndarray:
        """The length of every step."""
        return self.windows.end_ns - self.windows.begin_ns

    def during(self, mask: np.ndarray) -> Intervals:
        """The time in which at least one activity of `mask` ran."""
        activities = self.scope.activities
        return union(activities.start_ns[mask], activities.end_ns[mask])

    def parts_ns(self) -> dict[str, np.ndarray]:
        """The time of every step in each of PARTS, and as OVERLAPPED the communication during computation.

        Computation has priority, then communication, then memory operations. Raises NotConserved unless the parts add
        up to the step, to the nanosecond.
        """
        compute, communication = self.during(self.is_compute), self.during(self.is_communication)
        memory = difference(self.during(self.is_here & self.scope.is_memory), compute, communication)
        busy = (compute, difference(communication, compute), memory)  # as PARTS, but idle
        idle_ns = self.length_ns - covered_ns(self.during(self.is_here), *self.windows)
        parts = dict(zip(PARTS, (*(covered_ns(part, *self.windows) for part in busy), idle_ns), strict=True))
        if (sum(parts.values()) != self.length_ns).any():
            step = f"a step of rank {self.rank.number} on device {self.device}"
            raise NotConserved(f"the parts of {step} do not add up to its length")
        return parts | {OVERLAPPED: covered_ns(intersection(communication, compute), *self.windows)}


def device_steps(ranks: Sequence[RankTrace], step_name: str) -> list[DeviceSteps]:
    """The steps of every rank on each of its devices."""
    return [DeviceSteps(rank, device, step_name) for rank in ranks for device in rank.devices]
