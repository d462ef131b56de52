"""The ranks of a run: the processes that worked on a device, of one capture or of several.

A run on several GPUs has a process for each. nsys captures each in its own file, or all of them in one file, where
their correlation ids collide; both work. Every capture has its own clock, so no duration may span two of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.steps import measured_steps
from kernel_tables.reading.schema import MISSING, RANK_KEY, RANKS_KEY


@dataclass(frozen=True)
class RankTrace:
    """One process of a run. Masks are over the activities of its trace, which may contain other processes, too."""

    number: int
    trace: CaptureArrays
    process: int  # global id; MISSING if its capture contains no work of any process

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
    """The ranks: numbered as the captures say, if each is of one process and names its rank; else in the order of the
    captures, and within one by device, then by process.

    A capture in which nothing ran on a device counts as one rank, so that later ones keep their numbers.
    """
    pairs = [(trace, process) for trace in traces for process in processes_with_work(trace) or [_only_process(trace)]]
    numbers = numbers_in_run(traces) if len(pairs) == len(traces) else None
    ranks = [RankTrace(number, *pair) for number, pair in zip(numbers or range(len(pairs)), pairs, strict=True)]
    return sorted(ranks, key=lambda rank: rank.number)


def numbers_in_run(traces: Sequence[CaptureArrays]) -> list[int] | None:
    """The rank that each capture names; None if one names none, or two name the same."""
    texts = [trace.metadata.get(RANK_KEY, "") for trace in traces]
    numbers = [int(text) for text in texts if text.isascii() and text.isdigit()]
    return numbers if len(set(numbers)) == len(texts) else None


def ranks_in_run(ranks: Sequence[RankTrace]) -> int:
    """The number of ranks in the run, by the metadata of its recordings, else the number of `ranks`."""
    counts = [rank.trace.metadata.get(RANKS_KEY, "") for rank in ranks]
    return max([len(ranks), *(int(count) for count in counts if count.isascii() and count.isdigit())])


def processes_with_work(trace: CaptureArrays) -> list[int]:
    """The global ids of the processes that ran something on a device, by their first device, then by number."""
    process, device = trace.gpu_activities.process, trace.places["device"]
    first = {number: int(device[process == number].min()) for number in np.unique(process).tolist()}
    return sorted(first, key=lambda number: (first[number], number))


def _only_process(trace: CaptureArrays) -> int:
    """The process of the first range of a capture without work."""
    return int(trace.range_arrays.process[0]) if len(trace.range_arrays) else MISSING
