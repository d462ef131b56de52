"""The time of the host by thread, phase or range, and function."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from kernel_tables import columns, host, intervals
from kernel_tables.attribution import arrays, capture_arrays
from kernel_tables.attribution.steps import OUTSIDE, phases_and_parts
from kernel_tables.global_ids import process_number, process_of, thread_number
from kernel_tables.host.events import NO_OWNER, Events, OwnedIntervals, by_priority, exclusive_time, read_events

NO_CALL = -1  # the function of the time in no call: Python, the dispatcher, and all that is not traced
AMOUNT_COLUMNS = ["calls", "time_ns", "own_ns", "samples", "samples_in_calls"]
GROUPINGS = PHASE, RANGE = ("phase", "range")
# The columns by which the table is sorted, and whether ascending.
ORDER = {"process": True, "thread": True, "where": True, "own_ns": False, "samples": False, "function": True}


class HostAmounts(NamedTuple):
    """Amounts for one column, each of a function in a phase or range."""

    column: str  # one of AMOUNT_COLUMNS
    where: np.ndarray  # the number of the phase or range
    function: np.ndarray  # index into Events.functions, or NO_CALL
    amount: np.ndarray


class ThreadHostTime:
    """The calls and samples of one thread by function, and by phase or range."""

    def __init__(self, events: Events, rows: np.ndarray):
        """`rows` are the rows of the thread's events."""
        self._is_sample = np.array(host.SAMPLED)[events.source[rows]]
        self._calls, self._samples = rows[~self._is_sample], rows[self._is_sample]
        self._events = events
        self._start_ns, self._end_ns = events.start_ns[self._calls], events.end_ns[self._calls]
        self._function = events.function[self._calls]
        self._exclusive = exclusive_time(self._start_ns, self._end_ns)

    def by_phase(self, phases: OwnedIntervals, outside: int) -> Iterator[HostAmounts]:
        """The amounts by phase; `outside` is the number for the time in no phase. A call is counted in the phase in
        which it begins, but its time is divided among all phases in which it runs."""

        def phase_at(times_ns: np.ndarray) -> np.ndarray:
            phase = phases.owner_at(times_ns)
            return np.where(phase == NO_OWNER, outside, phase)

        def split_by_phase(column: str, start_ns: np.ndarray, end_ns: np.ndarray, function: np.ndarray) -> HostAmounts:
            """The time of these intervals, each of a function, by phase."""
            index, phase, shared_ns = phases.overlaps(start_ns, end_ns)
            outside_ns = end_ns - start_ns  # less what is in phases
            np.subtract.at(outside_ns, index, shared_ns)
            where = np.append(phase, np.full(len(function), outside))
            return _summed(column, where, np.append(function[index], function), np.append(shared_ns, outside_ns))

        # Recursive calls of a function count once.
        in_function, function = intervals.unions(self._start_ns, self._end_ns, self._function)
        in_calls = split_by_phase("time_ns", in_function.start_ns, in_function.end_ns, function)
        start_ns, end_ns, call = self._exclusive
        yield _summed("calls", phase_at(self._start_ns), self._function)
        yield in_calls
        yield split_by_phase("own_ns", start_ns, end_ns, self._function[call])
        yield from self._time_in_no_call(phases, np.append(in_calls.where, phase_at(self._start_ns)))
        yield from self._sample_counts(phase_at(self._events.start_ns[self._samples]))

    def by_range(self, where: np.ndarray) -> Iterator[HostAmounts]:
        """The amounts by range. `where` is the number of the range of each of the thread's events. A call counts with
        all of its time in the range in which it begins."""
        call_where, function_count = where[~self._is_sample], int(self._function.max(initial=0)) + 1
        keys, call_group = arrays.factorize(call_where * function_count + self._function)
        in_group, group = intervals.unions(self._start_ns, self._end_ns, call_group)
        start_ns, end_ns, call = self._exclusive
        yield _summed("calls", call_where, self._function)
        yield _summed("time_ns", *np.divmod(keys[group], function_count), in_group.lengths_ns)
        yield _summed("own_ns", call_where[call], self._function[call], end_ns - start_ns)
        yield from self._sample_counts(where[self._is_sample])

    def _time_in_no_call(self, phases: OwnedIntervals, phases_with_calls: np.ndarray) -> Iterator[HostAmounts]:
        """The amounts of the time in no call, in those phases in which the thread has calls (`phases_with_calls`)."""
        covered = intervals.union(self._exclusive.start_ns, self._exclusive.end_ns)
        free_ns = np.zeros(int(phases.owner.max(initial=0)) + 1, np.int64)  # by phase
        np.add.at(free_ns, phases.owner, phases.end_ns - phases.start_ns)
        _, phase, shared_ns = phases.overlaps(covered.start_ns, covered.end_ns)
        np.subtract.at(free_ns, phase, shared_ns)
        where = np.intersect1d(phases_with_calls, np.flatnonzero(free_ns))
        for column in ("time_ns", "own_ns"):
            yield HostAmounts(column, where, np.full(len(where), NO_CALL), free_ns[where])

    def _sample_counts(self, where: np.ndarray) -> Iterator[HostAmounts]:
        """The counts of samples, and of those inside calls; `where` is the phase or range of each sample."""
        function = self._events.function[self._samples]
        in_call = self._exclusive.owner_at(self._events.start_ns[self._samples]) != NO_OWNER
        yield _summed("samples", where, function)
        yield _summed("samples_in_calls", where, function, in_call.astype(np.int64))


def _summed(column: str, where: np.ndarray, function: np.ndarray, amounts: np.ndarray | None = None) -> HostAmounts:
    """The amounts (default: ones) summed by `where` and function, without zeros."""
    function_count = int(function.max(initial=0)) + 1
    keys, group = arrays.factorize(where * function_count + function)
    sums = arrays.sums_by_group(group, np.ones(len(group), np.int64) if amounts is None else amounts, len(keys))
    return HostAmounts(column, *np.divmod(keys[sums > 0], function_count), sums[sums > 0])


class OpenPhases:
    """When each phase was open on each thread. `names` are the names of the phases by number, OUTSIDE last.

    A range inside a phase is no phase itself, even if it has the name of one.
    """

    def __init__(self, trace: capture_arrays.CaptureArrays, step_name: str):
        self._ranges, paths = trace.range_arrays, trace.range_paths
        labels = phases_and_parts(paths.tuples, step_name)[0]  # the phase of each path
        self.names = [*dict.fromkeys(label for label in labels if label != OUTSIDE), OUTSIDE]
        numbers = {name: number for number, name in enumerate(self.names)}
        innermost = [names[-1] if names else OUTSIDE for names in paths.tuples]
        phase = [  # of each path that ends with its phase
            numbers[label] if name == label != OUTSIDE else NO_OWNER
            for name, label in zip(innermost, labels, strict=True)
        ]
        path = paths.of_node[: len(self._ranges)]
        self._phase = np.array(phase, np.int64)[path]  # by range, as are the next two
        self._in_step = np.array([step_name in names for names in paths.tuples], bool)[path]
        self._is_step = np.array([name == step_name for name in innermost], bool)[path]
        by_thread, self._by_process = _rows_by_id(self._ranges.thread), _rows_by_id(self._ranges.process)
        self._by_thread = {
            thread: ranges for thread, ranges in by_thread.items() if (self._phase[ranges] != NO_OWNER).any()
        }
        self._cached: dict[int, OwnedIntervals] = {}  # by process, shared by many threads

    def of_thread(self, thread: int) -> OwnedIntervals:
        """When the phases were open that this thread opened; if it opened none, those of its process. Owners are the
        numbers of phases. A phase outside steps is interrupted by steps."""
        if thread in self._by_thread:
            return self._intervals(self._by_thread[thread])
        process = process_of(thread)
        if process not in self._cached:
            self._cached[process] = self._intervals(self._by_process.get(process, np.empty(0, np.int64)))
        return self._cached[process]

    def _intervals(self, ranges: np.ndarray) -> OwnedIntervals:
        """The phases of these ranges. Where several are open, phases in steps have priority, then steps (whose time
        belongs to no phase), then phases outside steps. Of two phases of a kind, the one that first began has it."""
        is_phase, in_step = self._phase[ranges] != NO_OWNER, self._in_step[ranges]
        inside, steps, outside = ranges[is_phase & in_step], ranges[self._is_step[ranges]], ranges[is_phase & ~in_step]
        count = len(self._ranges)
        rows = np.concatenate([inside, steps, outside])
        phase = np.concatenate([self._phase[inside], np.full(len(steps), NO_OWNER), self._phase[outside]])
        priority = np.concatenate([self._first(inside), np.full(len(steps), count), count + 1 + self._first(outside)])
        return by_priority(self._ranges.start_ns[rows], self._ranges.end_ns[rows], priority).renumbered(phase)

    def _first(self, ranges: np.ndarray) -> np.ndarray:
        """For each range, the first of `ranges` with the same phase."""
        _, first, index = np.unique(self._phase[ranges], return_index=True, return_inverse=True)
        return ranges[first][index.reshape(-1)]


def _rows_by_id(ids: np.ndarray) -> dict[int, np.ndarray]:
    """The rows with each id, ascending."""
    distinct, index = arrays.factorize(ids)
    return dict(zip(distinct.tolist(), arrays.positions_by_group(index, len(distinct)), strict=True))


def host_table(trace: capture_arrays.CaptureArrays, by: str = PHASE, step_name: str = "step") -> pd.DataFrame:
    """One row per thread, phase (`by="range"`: innermost range), source, and function that was called or sampled there.

    - `time_ns` is the time that the thread spent in calls of the function, `own_ns` the same without the calls inside
      them. By phase, there is also a row for the time in no call: on a thread that makes calls in a phase, it and
      `own_ns` add up to the phase.
    - `us_per_launch` is `own_ns` over the activities that all threads launched in the phase or range.
    - `estimated_ns` is an estimate of the time in a sampled function outside of calls: its samples outside calls times
      the median time from a sample to the next.
    """
    trace.require_possible()
    events = read_events(trace)
    thread_rows = _rows_by_id(events.thread)
    if by == PHASE:
        phases = OpenPhases(trace, step_name)
        names, outside = phases.names, len(phases.names) - 1
        amounts = {
            thread: ThreadHostTime(events, rows).by_phase(phases.of_thread(thread), outside)
            for thread, rows in thread_rows.items()
        }
    else:
        parts = phases_and_parts(events.paths, step_name)[1]
        names = list(dict.fromkeys(parts))
        where = pd.Index(names).get_indexer(parts)[events.path]
        amounts = {thread: ThreadHostTime(events, rows).by_range(where[rows]) for thread, rows in thread_rows.items()}
    return _with_names(_as_table(amounts), names, events, _launches(trace, by, step_name))


def _as_table(amounts: dict[int, Iterable[HostAmounts]]) -> pd.DataFrame:
    """One row per thread, phase or range, and function, with all AMOUNT_COLUMNS."""
    parts = [pd.DataFrame(part._asdict()).assign(global_id=thread) for thread in amounts for part in amounts[thread]]
    parts = parts or [pd.DataFrame(columns=["global_id", *HostAmounts._fields])]
    keys = ["global_id", "where", "function"]
    table = pd.concat(parts).set_index([*keys, "column"])["amount"].astype("int64").unstack(fill_value=0)
    return table.reindex(columns=AMOUNT_COLUMNS, fill_value=0).rename_axis(columns=None).reset_index().astype("int64")


def _with_names(table: pd.DataFrame, names: list[str], events: Events, launches: dict[str, int]) -> pd.DataFrame:
    """The table of the command `host`, in ORDER. Samples have no times, calls have no estimate."""
    where, function = table["where"].to_numpy(), table["function"].to_numpy()
    # NO_CALL, as a function and as its source, indexes the entry that is appended to each of these lists
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
    """How many activities all threads launched in each phase or range, by its name."""
    labels = phases_and_parts(trace.range_paths.tuples, step_name)[GROUPINGS.index(by)]
    counts = np.bincount(trace.launch_path, minlength=len(labels))
    return pd.Series(counts).groupby(labels).sum().to_dict()
