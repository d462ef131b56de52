"""What one thread of the host did: time of its calls by function, and what its samples stand for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernel_tables.host.events import Events
from kernel_tables.host.own_time import own_time
from kernel_tables.host.phases import Phases
from kernel_tables.host.sources import SAMPLED, SOURCES
from kernel_tables.intervals import Intervals, difference, intersection, union
from kernel_tables.views.phases import OUTSIDE

NO_CALL, NO_SOURCE = "(in no call)", "none"  # Python, the dispatcher, and what no traced call covers
Row = tuple  # where, source, function, calls, time_ns, own_ns, samples, samples_in_calls, estimated_ns


class Thread:
    """The calls and samples of one thread of EVENTS, those at MINE, and when its phases were open; PERIOD is the time
    between two samples, by source."""

    def __init__(self, events: Events, mine: np.ndarray, phases: Phases, period_ns: np.ndarray):
        is_sample = np.array(SAMPLED)[events.source[mine]]
        self._events, self._phases, self._period_ns = events, phases, period_ns
        self.calls, self.samples = mine[~is_sample], mine[is_sample]
        self._own = own_time(events.start_ns[self.calls], events.end_ns[self.calls])
        self._in_calls = self._own.holds(events.start_ns[self.samples])
        self._free = {label: difference(opened, self._own.covered) for label, opened in phases.items()}

    def phases_of(self, events: np.ndarray) -> np.ndarray:
        """The phase in which each of EVENTS begins."""
        return self._phases.at(self._events.start_ns[events])

    def calls_by_phase(self) -> Iterator[Row]:
        """A row per phase and function; a call that lasts over several phases has in each what lies there."""
        begun, reached = self.phases_of(self.calls), set()
        for source, function, chosen in self._functions():
            time, own = self._time(chosen), self._own.of(chosen)
            rest_ns, rest_own_ns = time.total_ns, own.total_ns
            for label, opened in self._phases.items():
                count = int((begun[chosen] == label).sum())
                time_ns, own_ns = intersection(time, opened).total_ns, intersection(own, opened).total_ns
                rest_ns, rest_own_ns = rest_ns - time_ns, rest_own_ns - own_ns
                if count or time_ns:
                    reached.add(label)
                    yield label, source, function, count, time_ns, own_ns, 0, 0, None
            count = int((begun[chosen] == OUTSIDE).sum())
            if count or rest_ns:
                yield OUTSIDE, source, function, count, rest_ns, rest_own_ns, 0, 0, None
        for label in reached:
            if free_ns := self._free[label].total_ns:
                yield label, NO_SOURCE, NO_CALL, 0, free_ns, free_ns, 0, 0, None

    def calls_by(self, where: np.ndarray) -> Iterator[Row]:
        """A row per label of WHERE, which each call has one of, and function."""
        for source, function, chosen in self._functions():
            for label in dict.fromkeys(where[chosen].tolist()):
                here = chosen & (where == label)
                times = self._time(here).total_ns, self._own.of(here).total_ns
                yield label, source, function, int(here.sum()), *times, 0, 0, None

    def samples_by(self, where: np.ndarray) -> Iterator[Row]:
        """A row per label of WHERE, which each sample has one of, and function."""
        events = self._events
        groups: dict[tuple, list[int]] = {}
        keys = zip(where, events.source[self.samples], events.function[self.samples], strict=True)
        for number, key in enumerate(keys):
            groups.setdefault(key, []).append(number)
        for (label, source, function), own in groups.items():
            in_calls = int(self._in_calls[own].sum())
            estimated_ns = (len(own) - in_calls) * self._period_ns[source]
            figures = 0, None, None, len(own), in_calls, None if np.isnan(estimated_ns) else round(estimated_ns)
            yield label, SOURCES[source], events.functions[function], *figures

    def _functions(self) -> Iterator[tuple[str, str, np.ndarray]]:
        """(source, function, which of the calls) of every function that was called."""
        events = self._events
        key = events.source[self.calls] * len(events.functions) + events.function[self.calls]
        for one in np.unique(key).tolist():
            source, function = divmod(one, len(events.functions))
            yield SOURCES[source], events.functions[function], key == one

    def _time(self, chosen: np.ndarray) -> Intervals:
        calls = self.calls[chosen]
        return union(self._events.start_ns[calls], self._events.end_ns[calls])
