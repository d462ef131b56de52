"""Host time of one thread: its calls by function, its samples, and the time in no call."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution.arrays import factorize, sums_by_group
from kernel_tables.host import SAMPLED
from kernel_tables.host.events import Events
from kernel_tables.host.owned_intervals import NO_OWNER, OwnedIntervals, exclusive_time
from kernel_tables.intervals import unions

NO_CALL = -1  # the function of the time in no call: Python, the dispatcher, and everything that is not traced
FIGURES = ["calls", "time_ns", "own_ns", "samples", "samples_in_calls"]


class Amounts(NamedTuple):
    """Amounts of one of FIGURES, each for a phase or range (by number) and a function (Events.function or NO_CALL)."""

    figure: str
    where: np.ndarray
    function: np.ndarray
    amount: np.ndarray


class ThreadHostTime:
    """Host time of one thread, whose events are at `rows`. A phase, a range and a function are numbers."""

    def __init__(self, events: Events, rows: np.ndarray):
        self._is_sample = np.array(SAMPLED)[events.source[rows]]
        self._calls, self._samples = rows[~self._is_sample], rows[self._is_sample]
        self._events = events
        self._start_ns, self._end_ns = events.start_ns[self._calls], events.end_ns[self._calls]
        self._function = events.function[self._calls]
        self._exclusive = exclusive_time(self._start_ns, self._end_ns)

    def by_phase(self, phases: OwnedIntervals, outside: int) -> Iterator[Amounts]:
        """The amounts by phase, `outside` for no phase. A call that spans several phases counts in each."""

        def phase_at(times_ns: np.ndarray) -> np.ndarray:
            phase = phases.owner_at(times_ns)
            return np.where(phase == NO_OWNER, outside, phase)

        def cut(figure: str, start_ns: np.ndarray, end_ns: np.ndarray, function: np.ndarray) -> Amounts:
            index, phase, shared_ns = phases.overlaps(start_ns, end_ns)
            rest_ns = end_ns - start_ns
            np.subtract.at(rest_ns, index, shared_ns)
            where = np.append(phase, np.full(len(function), outside))
            return _added(figure, where, np.append(function[index], function), np.append(shared_ns, rest_ns))

        time, function = unions(self._start_ns, self._end_ns, self._function)
        start_ns, end_ns, call = self._exclusive
        yield _added("calls", phase_at(self._start_ns), self._function)
        yield (in_calls := cut("time_ns", time.start_ns, time.end_ns, function))
        yield cut("own_ns", start_ns, end_ns, self._function[call])
        yield from self._in_no_call(phases, np.append(in_calls.where, phase_at(self._start_ns)))
        yield from self._samples_by(phase_at(self._events.start_ns[self._samples]))

    def by_range(self, where: np.ndarray) -> Iterator[Amounts]:
        """The amounts by range; `where` is the number of the range of each event of the thread."""
        of_call, function_count = where[~self._is_sample], int(self._function.max(initial=0)) + 1
        keys, group = factorize(of_call * function_count + self._function)
        time, group = unions(self._start_ns, self._end_ns, group)
        start_ns, end_ns, call = self._exclusive
        yield _added("calls", of_call, self._function)
        yield _added("time_ns", *np.divmod(keys[group], function_count), time.lengths_ns)
        yield _added("own_ns", of_call[call], self._function[call], end_ns - start_ns)
        yield from self._samples_by(where[self._is_sample])

    def _in_no_call(self, phases: OwnedIntervals, with_calls: np.ndarray) -> Iterator[Amounts]:
        """The time outside of calls in the phases `with_calls`."""
        covered, free_ns = self._exclusive.covered, np.zeros(int(phases.owner.max(initial=0)) + 1, np.int64)
        np.add.at(free_ns, phases.owner, phases.end_ns - phases.start_ns)
        _, phase, shared_ns = phases.overlaps(covered.start_ns, covered.end_ns)
        np.subtract.at(free_ns, phase, shared_ns)
        where = np.intersect1d(with_calls, np.flatnonzero(free_ns))
        for figure in ("time_ns", "own_ns"):
            yield Amounts(figure, where, np.full(len(where), NO_CALL), free_ns[where])

    def _samples_by(self, where: np.ndarray) -> Iterator[Amounts]:
        function = self._events.function[self._samples]
        in_call = self._exclusive.owner_at(self._events.start_ns[self._samples]) != NO_OWNER
        yield _added("samples", where, function)
        yield _added("samples_in_calls", where, function, in_call.astype(np.int64))


def _added(figure: str, where: np.ndarray, function: np.ndarray, amounts: np.ndarray | None = None) -> Amounts:
    """The amounts (without them, ones) summed by `where` and function, without zeros."""
    count = int(function.max(initial=0)) + 1
    keys, group = factorize(where * count + function)
    sums = sums_by_group(group, np.ones(len(group), np.int64) if amounts is None else amounts, len(keys))
    return Amounts(figure, *np.divmod(keys[sums > 0], count), sums[sums > 0])
