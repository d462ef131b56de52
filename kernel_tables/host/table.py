"""The time of the host by thread, phase or range, and function."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from kernel_tables import columns, host, intervals
from kernel_tables.attribution import arrays, capture_arrays
from kernel_tables.attribution.steps import OUTSIDE, phases_and_parts
from kernel_tables.host.events import NO_OWNER, Events, OwnedIntervals, by_priority, exclusive_time, read_events
from kernel_tables.reading.global_ids import process_number, process_of, thread_number

NO_CALL = -1  # the function of the time in no call: Python, the dispatcher, and everything that is not traced
FIGURES = ["calls", "time_ns", "own_ns", "samples", "samples_in_calls"]
BY = PHASE, RANGE = ("phase", "range")
ORDER = {"process": True, "thread": True, "where": True, "own_ns": False, "samples": False, "function": True}


class Amounts(NamedTuple):
    """Amounts of one of FIGURES, each for a phase or range (by number) and a function (Events.function or NO_CALL)."""

    figure: str
    where: np.ndarray
    function: np.ndarray
    amount: np.ndarray


class ThreadHostTime:
    """Host time of one thread, whose events are at `rows`. A phase, a range and a function are numbers."""

    def __init__(self, events: Events, rows: np.ndarray):
        self._is_sample = np.array(host.SAMPLED)[events.source[rows]]
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

        time, function = intervals.unions(self._start_ns, self._end_ns, self._function)
        start_ns, end_ns, call = self._exclusive
        yield _added("calls", phase_at(self._start_ns), self._function)
        yield (in_calls := cut("time_ns", time.start_ns, time.end_ns, function))
        yield cut("own_ns", start_ns, end_ns, self._function[call])
        yield from self._in_no_call(phases, np.append(in_calls.where, phase_at(self._start_ns)))
        yield from self._samples_by(phase_at(self._events.start_ns[self._samples]))

    def by_range(self, where: np.ndarray) -> Iterator[Amounts]:
        """The amounts by range; `where` is the number of the range of each event of the thread."""
        of_call, function_count = where[~self._is_sample], int(self._function.max(initial=0)) + 1
        keys, group = arrays.factorize(of_call * function_count + self._function)
        time, group = intervals.unions(self._start_ns, self._end_ns, group)
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
    keys, group = arrays.factorize(where * count + function)
    sums = arrays.sums_by_group(group, np.ones(len(group), np.int64) if amounts is None else amounts, len(keys))
    return Amounts(figure, *np.divmod(keys[sums > 0], count), sums[sums > 0])


class OpenPhases:
    """The ranges that are phases themselves, not ranges inside them or elsewhere with the same name.

    `names` are the names of the phases by number, OUTSIDE last.
    """

    def __init__(self, trace: capture_arrays.CaptureArrays, step_name: str):
        self._ranges, paths = trace.range_arrays, trace.range_paths
        labels = phases_and_parts(paths.tuples, step_name)[0]
        self.names = [*dict.fromkeys(label for label in labels if label != OUTSIDE), OUTSIDE]
        number = {name: index for index, name in enumerate(self.names)}
        range_name = [names[-1] if names else OUTSIDE for names in paths.tuples]
        phase = [
            number[label] if name == label != OUTSIDE else NO_OWNER
            for name, label in zip(range_name, labels, strict=True)
        ]
        path = paths.of_node[: len(self._ranges)]
        self._phase = np.array(phase, np.int64)[path]
        self._in_step = np.array([step_name in names for names in paths.tuples], bool)[path]
        self._is_step = np.array([name == step_name for name in range_name], bool)[path]
        by_thread, self._by_process = _by_id(self._ranges.thread), _by_id(self._ranges.process)
        self._by_thread = {
            thread: ranges for thread, ranges in by_thread.items() if (self._phase[ranges] != NO_OWNER).any()
        }
        self._of_process: dict[int, OwnedIntervals] = {}  # shared by many threads

    def of_thread(self, thread: int) -> OwnedIntervals:
        """The phases that this thread opened, by number; if it opened none, those of its process.

        A phase outside steps is interrupted by steps.
        """
        if thread in self._by_thread:
            return self._intervals(self._by_thread[thread])
        process = process_of(thread)
        if process not in self._of_process:
            self._of_process[process] = self._intervals(self._by_process.get(process, np.empty(0, np.int64)))
        return self._of_process[process]

    def _intervals(self, ranges: np.ndarray) -> OwnedIntervals:
        """Where phases overlap, the earliest has priority; phases in steps precede steps, and these precede
        phases outside steps."""
        is_phase, in_step = self._phase[ranges] != NO_OWNER, self._in_step[ranges]
        inside, steps, outside = ranges[is_phase & in_step], ranges[self._is_step[ranges]], ranges[is_phase & ~in_step]
        count = len(self._ranges)
        numbers = np.concatenate([inside, steps, outside])
        phase = np.concatenate([self._phase[inside], np.full(len(steps), NO_OWNER), self._phase[outside]])
        priority = np.concatenate([self._first(inside), np.full(len(steps), count), count + 1 + self._first(outside)])
        return by_priority(self._ranges.start_ns[numbers], self._ranges.end_ns[numbers], priority).renumbered(phase)

    def _first(self, ranges: np.ndarray) -> np.ndarray:
        """The first of `ranges` with the same phase as each."""
        _, first, index = np.unique(self._phase[ranges], return_index=True, return_inverse=True)
        return ranges[first][index.reshape(-1)]


def _by_id(ids: np.ndarray) -> dict[int, np.ndarray]:
    """The positions of every id, ascending."""
    distinct, index = arrays.factorize(ids)
    return dict(zip(distinct.tolist(), arrays.positions_by_group(index, len(distinct)), strict=True))


def host_table(trace: capture_arrays.CaptureArrays, by: str = PHASE, step_name: str = "step") -> pd.DataFrame:
    """One row per thread, phase (`by="range"`: innermost range), source, and function that was called there.

    `time_ns` is the time that the thread spent in such calls, `own_ns` the same without the calls inside them: on a
    thread that makes calls in a phase, own_ns and the time in no call add up to the phase. `us_per_launch` is `own_ns`
    over the activities launched there. Samples are counted; `estimated_ns` estimates the time in that function outside
    of calls: the samples outside calls times the time between two samples.
    """
    trace.require_possible()
    events = read_events(trace)
    rows_of = _by_id(events.thread)
    if by == PHASE:
        phases = OpenPhases(trace, step_name)
        names, outside = phases.names, len(phases.names) - 1
        amounts = {
            thread: ThreadHostTime(events, rows).by_phase(phases.of_thread(thread), outside)
            for thread, rows in rows_of.items()
        }
    else:
        parts = phases_and_parts(events.paths, step_name)[1]
        names = list(dict.fromkeys(parts))
        where = pd.Index(names).get_indexer(parts)[events.path]
        amounts = {thread: ThreadHostTime(events, rows).by_range(where[rows]) for thread, rows in rows_of.items()}
    return _with_names(_summed(amounts), names, events, _launches(trace, by, step_name))


def _summed(amounts: dict[int, Iterable[Amounts]]) -> pd.DataFrame:
    """One row per thread, phase or range, and function, with all FIGURES."""
    parts = [pd.DataFrame(part._asdict()).assign(global_id=thread) for thread in amounts for part in amounts[thread]]
    parts = parts or [pd.DataFrame(columns=["global_id", *Amounts._fields])]
    keys = ["global_id", "where", "function"]
    table = pd.concat(parts).set_index([*keys, "figure"])["amount"].astype("int64").unstack(fill_value=0)
    return table.reindex(columns=FIGURES, fill_value=0).rename_axis(columns=None).reset_index().astype("int64")


def _with_names(table: pd.DataFrame, names: list[str], events: Events, launches: dict[str, int]) -> pd.DataFrame:
    """The table of `host`, in order. Samples have no times, calls have no estimate."""
    where, function = table["where"].to_numpy(), table["function"].to_numpy()
    source = np.append(events.source_of_function, NO_CALL)[function]
    is_sample = np.append(host.SAMPLED, False)[source]
    estimated_ns = (table["samples"] - table["samples_in_calls"]) * np.append(events.period_ns(), np.nan)[source]
    table = table.assign(
        process=process_number(table["global_id"].to_numpy()),
        thread=thread_number(table["global_id"].to_numpy()),
        where=np.array(names, object)[where],
        source=np.array([*host.SOURCES, "none"], object)[source],
        function=np.array([*events.functions, "(in no call)"], object)[function],
        time_ns=table["time_ns"].astype("Int64").mask(is_sample),
        own_ns=table["own_ns"].astype("Int64").mask(is_sample),
        estimated_ns=estimated_ns.round().astype("Int64").where(is_sample),
    )
    table["launches"] = table["where"].map(launches).fillna(0).astype("int64")
    table["us_per_launch"] = table["own_ns"].astype("float64") / 1e3 / table["launches"].replace(0, np.nan)
    return table[columns.column_names("host")].sort_values(
        list(ORDER), ascending=list(ORDER.values()), ignore_index=True
    )


def _launches(trace: capture_arrays.CaptureArrays, by: str, step_name: str) -> dict[str, int]:
    """How many activities were launched in each phase or range."""
    labels = phases_and_parts(trace.range_paths.tuples, step_name)[BY.index(by)]
    counts = np.bincount(trace.launch_path, minlength=len(labels))
    return pd.Series(counts).groupby(labels).sum().to_dict()
