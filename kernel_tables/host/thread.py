"""Host time of one thread: its calls by function, its samples, and the time in no call."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kernel_tables.attribution.arrays import factorize
from kernel_tables.host import SAMPLED
from kernel_tables.host.events import Events
from kernel_tables.host.owned_intervals import NO_OWNER, OwnedIntervals, exclusive_time
from kernel_tables.intervals import unions

NO_CALL = -1  # the function of the time in no call: Python, the dispatcher, and all that is not traced
KEYS = ["where", "function"]  # the number of a phase or range, and Events.function, or NO_CALL
FIGURES = ["calls", "time_ns", "own_ns", "samples", "samples_in_calls", "estimated_ns"]


class ThreadHostTime:
    """Host time of one thread. `rows` index its events; `period_ns` is the time between two samples, by source.

    A table has a row for each of KEYS that occur, and those of FIGURES that apply.
    """

    def __init__(self, events: Events, rows: np.ndarray, period_ns: np.ndarray):
        self._period_ns = period_ns
        self._is_sample = np.array(SAMPLED)[events.source[rows]]
        calls, samples = rows[~self._is_sample], rows[self._is_sample]
        self._start_ns, self._end_ns, self._function = (
            events.start_ns[calls],
            events.end_ns[calls],
            events.function[calls],
        )
        self._exclusive = exclusive_time(self._start_ns, self._end_ns)
        self._sample_ns, self._sample_source = events.start_ns[samples], events.source[samples]
        self._sample_function = events.function[samples]
        self._sample_in_call = self._exclusive.owner_at(self._sample_ns) != NO_OWNER

    def by_phase(self, phases: OwnedIntervals, outside: int) -> pd.DataFrame:
        """The table by phase, with OUTSIDE for no phase. A call that lasts over several phases counts in each."""

        def phase_at(times_ns: np.ndarray) -> np.ndarray:
            phase = phases.owner_at(times_ns)
            return np.where(phase == NO_OWNER, outside, phase)

        def cut(start_ns: np.ndarray, end_ns: np.ndarray, function: np.ndarray, figure: str) -> pd.DataFrame:
            index, phase, shared_ns = phases.overlaps(start_ns, end_ns)
            rest_ns = end_ns - start_ns
            np.subtract.at(rest_ns, index, shared_ns)
            where = np.append(phase, np.full(len(function), outside))
            return _frame(where, np.append(function[index], function), figure, np.append(shared_ns, rest_ns))

        time, function = unions(self._start_ns, self._end_ns, self._function)
        start_ns, end_ns, call = self._exclusive
        calls = _summed(
            _frame(phase_at(self._start_ns), self._function, "calls", 1),
            cut(time.start_ns, time.end_ns, function, "time_ns"),
            cut(start_ns, end_ns, self._function[call], "own_ns"),
        )
        free = self._in_no_call(phases)
        free = free[free["where"].isin(calls["where"])]
        return pd.concat([calls, free, self._samples(phase_at(self._sample_ns))])

    def by_range(self, where: np.ndarray) -> pd.DataFrame:
        """The table by range, given the number of the range that each event of the thread is in."""
        of_call = where[~self._is_sample]
        function_count = int(self._function.max(initial=0)) + 1
        keys, group = factorize(of_call * function_count + self._function)
        time, group = unions(self._start_ns, self._end_ns, group)
        start_ns, end_ns, call = self._exclusive
        calls = _summed(
            _frame(of_call, self._function, "calls", 1),
            _frame(*np.divmod(keys[group], function_count), "time_ns", time.lengths_ns),
            _frame(of_call[call], self._function[call], "own_ns", end_ns - start_ns),
        )
        return pd.concat([calls, self._samples(where[self._is_sample])])

    def _in_no_call(self, phases: OwnedIntervals) -> pd.DataFrame:
        """The time of each phase in no call."""
        covered, free_ns = self._exclusive.covered, np.zeros(int(phases.owner.max(initial=0)) + 1, np.int64)
        np.add.at(free_ns, phases.owner, phases.end_ns - phases.start_ns)
        _, phase, shared_ns = phases.overlaps(covered.start_ns, covered.end_ns)
        np.subtract.at(free_ns, phase, shared_ns)
        free = _frame(np.arange(len(free_ns)), NO_CALL, "own_ns", free_ns)
        return free.assign(calls=0, time_ns=free["own_ns"], samples=0, samples_in_calls=0)

    def _samples(self, where: np.ndarray) -> pd.DataFrame:
        """The samples by KEYS, and samples outside calls × the time between two samples, NA if that is unknown."""
        samples = pd.DataFrame({"where": where, "function": self._sample_function, "in_call": self._sample_in_call})
        samples["period_ns"] = self._period_ns[self._sample_source]
        table = samples.groupby(KEYS).agg(
            samples=("in_call", "size"), samples_in_calls=("in_call", "sum"), period_ns=("period_ns", "first")
        )
        estimated_ns = (table["samples"] - table["samples_in_calls"]) * table.pop("period_ns")
        return table.assign(calls=0, estimated_ns=estimated_ns.round().astype("Int64")).reset_index()


def _frame(where: np.ndarray, function: np.ndarray | int, figure: str, values: np.ndarray | int) -> pd.DataFrame:
    """One figure by KEYS, without rows in which it is 0."""
    table = pd.DataFrame({"where": where, "function": function, figure: values})
    return table[table[figure] > 0]


def _summed(*figures: pd.DataFrame) -> pd.DataFrame:
    """The sums of figures of calls by KEYS, 0 where one has none."""
    sums = [table.groupby(KEYS).sum() for table in figures]
    table = pd.concat(sums, axis=1).fillna(0).astype("int64").reset_index()
    return table.assign(samples=0, samples_in_calls=0)
