"""The time of the host by thread, phase or range, and function."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from kernel_tables.attribution.arrays import factorize, grouped
from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.steps import OUTSIDE, phases_and_parts
from kernel_tables.host import SAMPLED, SOURCES
from kernel_tables.host.events import Events, read_events
from kernel_tables.host.owned_intervals import NO_OWNER, OwnedIntervals, by_priority
from kernel_tables.host.thread import FIGURES, NO_CALL, Amounts, ThreadHostTime
from kernel_tables.reading.global_ids import process_number, process_of, thread_number


class OpenPhases:
    """The ranges that are phases themselves, not ranges inside them or elsewhere with the same name.

    `names` are the names of the phases by number, OUTSIDE last.
    """

    def __init__(self, trace: CaptureArrays, step_name: str):
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
    distinct, index = factorize(ids)
    return dict(zip(distinct.tolist(), grouped(index, len(distinct)), strict=True))


BY = PHASE, RANGE = ("phase", "range")
COLUMNS = ["process", "thread", "where", "source", "function", *FIGURES, "estimated_ns", "launches", "us_per_launch"]
ORDER = {"process": True, "thread": True, "where": True, "own_ns": False, "samples": False, "function": True}


def host_table(trace: CaptureArrays, by: str = PHASE, step_name: str = "step") -> pd.DataFrame:
    """One row per thread, phase (`by="range"`: innermost range), source, and function that was called there.

    `time_ns` is the time that the thread spent in such calls, `own_ns` the same without the calls inside them: on a
    thread that makes calls in a phase, own_ns and the time in no call add up to the phase. `us_per_launch` is `own_ns`
    over the activities launched there. Samples are counted; `estimated_ns` estimates the time in that function outside
    of calls: the samples outside calls times the time between two samples.
    """
    trace.require_possible()
    events = read_events(trace)
    threads, index = factorize(events.thread)
    rows_of = dict(zip(threads.tolist(), grouped(index, len(threads)), strict=True))
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
    """The table with COLUMNS, in order. Samples have no times, calls have no estimate."""
    where, function = table["where"].to_numpy(), table["function"].to_numpy()
    source = np.append(events.source_of_function, NO_CALL)[function]
    is_sample = np.append(SAMPLED, False)[source]
    estimated_ns = (table["samples"] - table["samples_in_calls"]) * np.append(events.period_ns(), np.nan)[source]
    table = table.assign(
        process=process_number(table["global_id"].to_numpy()),
        thread=thread_number(table["global_id"].to_numpy()),
        where=np.array(names, object)[where],
        source=np.array([*SOURCES, "none"], object)[source],
        function=np.array([*events.functions, "(in no call)"], object)[function],
        time_ns=table["time_ns"].astype("Int64").mask(is_sample),
        own_ns=table["own_ns"].astype("Int64").mask(is_sample),
        estimated_ns=estimated_ns.round().astype("Int64").where(is_sample),
    )
    table["launches"] = table["where"].map(launches).fillna(0).astype("int64")
    table["us_per_launch"] = table["own_ns"].astype("float64") / 1e3 / table["launches"].replace(0, np.nan)
    return table[COLUMNS].sort_values(list(ORDER), ascending=list(ORDER.values()), ignore_index=True)


def _launches(trace: CaptureArrays, by: str, step_name: str) -> dict[str, int]:
    """How many activities were launched in each phase or range."""
    labels = phases_and_parts(trace.range_paths.tuples, step_name)[BY.index(by)]
    counts = np.bincount(trace.launch_path, minlength=len(labels))
    return pd.Series(counts).groupby(labels).sum().to_dict()
