"""What one thread of the host did: time of its calls by function, and what its samples stand for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernel_tables.attribution.keys import compact
from kernel_tables.host.events import Events
from kernel_tables.host.pieces import NOBODY, Pieces, own_time
from kernel_tables.host.sources import SAMPLED, SOURCES
from kernel_tables.intervals import unions

NO_CALL, NO_SOURCE = "(in no call)", "none"  # Python, the dispatcher, and what no traced call covers
Row = tuple  # number of where, source, function, calls, time_ns, own_ns, samples, samples_in_calls, estimated_ns
Times = tuple[np.ndarray, np.ndarray]  # keys, and what is added up by them


class Thread:
    """The calls and samples of one thread of EVENTS, those at MINE; PERIOD is the time between two samples, by source.
    Where they are, a phase or a range, is a number below COUNT."""

    def __init__(self, events: Events, mine: np.ndarray, period_ns: np.ndarray, count: int):
        self._events, self._period_ns, self._count = events, period_ns, count
        self._is_sample = np.array(SAMPLED)[events.source[mine]]
        calls, self._samples = mine[~self._is_sample], mine[self._is_sample]
        self._start_ns, self._end_ns = events.start_ns[calls], events.end_ns[calls]
        self._own = own_time(self._start_ns, self._end_ns)
        self._in_calls = self._own.at(events.start_ns[self._samples]) != NOBODY
        functions = events.source[calls] * len(events.functions) + events.function[calls]
        self._functions, self._function = compact(functions)

    def by_phase(self, phases: Pieces) -> list[Row]:
        """A row per phase and function of its calls, and of its samples; a call that lasts over several phases has in
        each what lies there. The last number stands for no phase."""
        time, function = unions(self._start_ns, self._end_ns, self._function)
        begun = self._keys(self._function, self._phase_at(phases, self._start_ns))
        own = self._own.start_ns, self._own.end_ns, self._function[self._own.owner]
        calls = list(
            self._calls(begun, self._cut(phases, time.start_ns, time.end_ns, function), self._cut(phases, *own))
        )
        samples = self._samples_by(self._phase_at(phases, self._events.start_ns[self._samples]))
        return [*calls, *self._in_no_call(phases, {row[0] for row in calls}), *samples]

    def by_range(self, where: np.ndarray) -> list[Row]:
        """The same by number in WHERE, which each of MINE has one of."""
        of_calls = where[~self._is_sample]
        keys = self._keys(self._function, of_calls)
        distinct, group = compact(keys)
        time, group = unions(self._start_ns, self._end_ns, group)
        own_ns = self._own.end_ns - self._own.start_ns
        calls = self._calls(keys, (distinct[group], time.lengths_ns), (keys[self._own.owner], own_ns))
        return [*calls, *self._samples_by(where[self._is_sample])]

    def _in_no_call(self, phases: Pieces, reached: set[int]) -> Iterator[Row]:
        """A row per phase with calls that has time in none."""
        covered, free_ns = self._own.covered, np.zeros(self._count, np.int64)
        np.add.at(free_ns, phases.owner, phases.end_ns - phases.start_ns)
        _, phase, shared = phases.cut(covered.start_ns, covered.end_ns)
        np.subtract.at(free_ns, phase, shared)
        for where in sorted(reached):
            if time_ns := int(free_ns[where]):
                yield where, NO_SOURCE, NO_CALL, 0, time_ns, time_ns, 0, 0, None

    def _samples_by(self, where: np.ndarray) -> Iterator[Row]:
        """A row per number in WHERE, which each sample has one of, and function."""
        events = self._events
        groups: dict[tuple, list[int]] = {}
        columns = (where, events.source[self._samples], events.function[self._samples])
        for number, key in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            groups.setdefault(key, []).append(number)
        for (place, source, function), own in groups.items():
            in_calls = int(self._in_calls[own].sum())
            estimated_ns = (len(own) - in_calls) * self._period_ns[source]
            figures = 0, None, None, len(own), in_calls, None if np.isnan(estimated_ns) else round(estimated_ns)
            yield place, SOURCES[source], events.functions[function], *figures

    def _phase_at(self, phases: Pieces, times_ns: np.ndarray) -> np.ndarray:
        phase = phases.at(times_ns)
        return np.where(phase == NOBODY, self._count - 1, phase)

    def _keys(self, function: np.ndarray, where: np.ndarray) -> np.ndarray:
        return function.astype(np.int64) * self._count + where

    def _cut(self, phases: Pieces, start_ns: np.ndarray, end_ns: np.ndarray, function: np.ndarray) -> Times:
        """The time of intervals that are of functions, by function and phase, what is in no phase included."""
        interval, phase, shared = phases.cut(start_ns, end_ns)
        rest = end_ns - start_ns
        np.subtract.at(rest, interval, shared)
        keys = self._keys(function[interval], phase), self._keys(function, np.full(len(rest), self._count - 1))
        return np.concatenate(keys), np.concatenate([shared, rest])

    def _calls(self, calls: np.ndarray, time: Times, own: Times) -> Iterator[Row]:
        """A row per key that has calls or time, from the key of each call."""
        lasting = time[1] > 0
        keys = np.unique(np.concatenate([calls, time[0][lasting]]))
        figures = [np.bincount(np.searchsorted(keys, calls), minlength=len(keys))]
        for of_keys, times_ns in ((time[0][lasting], time[1][lasting]), own):
            added = np.zeros(len(keys), np.int64)
            kept = times_ns > 0
            np.add.at(added, np.searchsorted(keys, of_keys[kept]), times_ns[kept])
            figures.append(added)
        functions = self._events.functions
        for key, *row in zip(keys.tolist(), *(figure.tolist() for figure in figures), strict=True):
            function, where = divmod(key, self._count)
            source, name = divmod(int(self._functions[function]), len(functions))
            yield where, SOURCES[source], functions[name], *row, 0, 0, None
