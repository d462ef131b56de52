"""The time of the host by thread, phase or range, and function: its CUDA calls, calls of the operating system's
runtime, and sampled stacks. Without a GPU, the calls are operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from kernel_tables.attribution import Chains, Paths
from kernel_tables.capture import NONE, THREAD_BITS, process_of
from kernel_tables.columns import column_names
from kernel_tables.intervals import Intervals, overlapping_pairs, union, unions
from kernel_tables.steps import OUTSIDE, phases_and_parts, rows_by_value

if TYPE_CHECKING:
    from kernel_tables.profile import Profile

SOURCES = ("cuda", "osrt", "python", "sample")  # of calls, then of samples
UNKNOWN = "(unknown)"  # a function. The function NONE is the time in no call, the owner NONE is nobody


def host_table(profile: Profile, by: str = "phase", step_name: str = "step") -> pd.DataFrame:
    """One row per thread, phase (`by="range"`: innermost range), source, and function that was called or sampled there.

    - `time_ns` is the time that the thread spent in calls of the function, `own_ns` the same without the calls inside
      them. By phase, there is also a row for the time in no call: on a thread that makes calls in a phase, it and
      `own_ns` add up to the phase.
    - `us_per_launch` is `own_ns` over the activities that all threads launched in the phase or range.
    - `estimated_ns` is an estimate of the time in a sampled function outside of calls: its samples outside calls times
      the median time from a sample to the next.
    """
    events = _Events.read(profile)
    if by == "phase":
        phases = _Phases(profile, step_name)
        names = phases.names
    else:
        parts, path = events.innermost_ranges(profile, step_name)
        numbers = {name: number for number, name in enumerate(dict.fromkeys(parts))}
        names, where = list(numbers), np.array([numbers[part] for part in parts], np.int64)[path]
    amounts = []
    for thread, rows in rows_by_value(events.thread).items():
        of_thread = _Thread(events, rows)
        of_thread = of_thread.by_phase(phases, thread) if by == "phase" else of_thread.by_range(where[rows])
        amounts += [pd.DataFrame(amount._asdict()).assign(thread=thread) for amount in of_thread]
    table = pd.concat(amounts) if amounts else pd.DataFrame(columns=["thread", *_Amount._fields])
    keys = ["thread", "where", "function", "column"]
    table = table[table["amount"] > 0].groupby(keys)["amount"].sum().astype("int64").unstack(fill_value=0)
    labels = phases_and_parts(profile.paths, step_name)[by != "phase"]
    launches = pd.Series(np.bincount(profile.launch_path, minlength=len(labels))).groupby(labels).sum()
    table = events.named(table, np.array(names, object), launches)
    return table.replace({"source": {"cuda": "operator"}}) if profile.is_cpu_only else table


def missing_sources(profile: Profile, table: pd.DataFrame) -> Iterator[str]:
    """What the capture lacks for the table, and the option that records it."""
    if profile.capture.is_torch:
        yield "PyTorch's profiler records no calls of the OS runtime and samples no stacks; nsys does both"
        return
    samples = table[table["source"].isin(SOURCES[2:])]
    if not (table["source"] == "osrt").any():
        yield "the capture holds no calls of the OS runtime (nsys profile --trace=cuda,nvtx,osrt)"
    if samples.empty:
        yield ("the capture holds no sampled stacks (nsys profile --python-sampling=true, or --sample=process-tree)")
    elif (samples["source"] == "python").any() and (samples["function"] == UNKNOWN).all():
        yield ("the export holds no frames of its Python samples (nsys export --type sqlite --include-blobs=true)")


@dataclass(frozen=True)
class _Events:
    """Calls and samples of all sources; a sample has no duration."""

    source: np.ndarray  # index into SOURCES
    start: np.ndarray
    end: np.ndarray
    thread: np.ndarray  # global id
    function: np.ndarray  # index into functions
    functions: list[tuple[int, str]]  # source and name

    @classmethod
    def read(cls, profile: Profile) -> _Events:
        """The events of every source that the capture contains."""
        capture, calls = profile.capture, profile.capture.calls
        capture.load_call_ends()
        keys, name = np.unique(calls.name, return_inverse=True)
        cuda = {
            "start": calls.start, "end": calls.end, "name": name.reshape(-1),
            "thread": calls.threads[calls.thread], "names": [calls.names.get(key, UNKNOWN) for key in keys.tolist()],
        }  # fmt: skip
        parts = [cuda, capture.source.os_calls(), capture.source.python_samples(), capture.source.native_samples()]
        numbers: dict[tuple[int, str], int] = {}
        function = []
        for source, part in enumerate(parts):  # a missing name is the last
            names = [numbers.setdefault((source, name), len(numbers)) for name in [*part["names"], UNKNOWN]]
            function.append(np.array(names, np.int64)[part["name"]])
        start, thread = (np.concatenate([part[name] for part in parts]) for name in ("start", "thread"))
        end = np.concatenate([part.get("end", part["start"]) for part in parts])
        source = np.repeat(np.arange(len(parts)), [len(part["start"]) for part in parts])
        return cls(source, start, end, thread, np.concatenate(function), list(numbers))

    @property
    def is_sample(self) -> np.ndarray:
        return self.source >= SOURCES.index("python")

    def innermost_ranges(self, profile: Profile, step_name: str) -> tuple[list[str], np.ndarray]:
        """The innermost range of each path, and the path of each event, by the rule of attribution."""
        capture, node = profile.capture, np.full(len(self.start), NONE)
        if not len(capture.ranges):
            return [OUTSIDE], np.zeros(len(node), np.int64)
        chains = Chains(capture.path, capture.ranges)
        for thread, rows in rows_by_value(self.thread).items():
            node[rows] = chains.at(self.start[rows], thread)
        parent, innermost = chains.finished()
        paths = Paths(parent, capture.ranges.name[innermost], capture.ranges.names)
        return phases_and_parts(paths.tuples, step_name)[1], paths.of_node[node]

    def periods_ns(self) -> np.ndarray:
        """By source, the median time from a sample to the next on its thread; NaN for calls, or without two samples."""
        order = np.lexsort((self.start, self.thread, self.source))
        gaps, source, thread = np.diff(self.start[order]), self.source[order], self.thread[order]
        same = (source[1:] == source[:-1]) & (thread[1:] == thread[:-1]) & self.is_sample[order][1:]
        of_sources = [gaps[same & (source[1:] == number)] for number in range(len(SOURCES))]
        return np.array([np.median(of_source) if len(of_source) else np.nan for of_source in of_sources])

    def named(self, table: pd.DataFrame, names: np.ndarray, launches: pd.Series) -> pd.DataFrame:
        """The table of the command `host`. Samples have no times, calls have no estimate."""
        amounts = ["calls", "time_ns", "own_ns", "samples", "samples_in_calls"]
        table = table.reindex(columns=amounts, fill_value=0).rename_axis(columns=None).reset_index()
        thread, where, function = (table[name].to_numpy(np.int64) for name in ("thread", "where", "function"))
        source = np.append([source for source, _ in self.functions], NONE)[function]  # NONE is the last
        is_sample = source >= SOURCES.index("python")
        estimated_ns = (table["samples"] - table["samples_in_calls"]) * np.append(self.periods_ns(), np.nan)[source]
        table = table.assign(
            process=process_of(thread) >> 24 & THREAD_BITS,
            thread=thread & THREAD_BITS,
            where=names[where],
            source=np.array([*SOURCES, "none"], object)[source],
            function=np.array([*(name for _, name in self.functions), "(in no call)"], object)[function],
            time_ns=table["time_ns"].astype("Int64").mask(is_sample),
            own_ns=table["own_ns"].astype("Int64").mask(is_sample),
            estimated_ns=estimated_ns.round().astype("Int64").where(is_sample),
        )
        table["launches"] = table["where"].map(launches).fillna(0).astype("int64")
        table["us_per_launch"] = table["own_ns"].astype("float64") / 1e3 / table["launches"].replace(0, np.nan)
        order = {"process": True, "thread": True, "where": True, "own_ns": False, "samples": False, "function": True}
        return table[column_names("host")].sort_values(list(order), ascending=list(order.values()), ignore_index=True)


class _Owned(NamedTuple):
    """Intervals in order of time that do not overlap, and the number of the owner of each."""

    start: np.ndarray
    end: np.ndarray
    owner: np.ndarray

    @classmethod
    def by_priority(cls, start: np.ndarray, end: np.ndarray, priority: np.ndarray) -> _Owned:
        """The time that the intervals cover. Each moment belongs to the open interval with the lowest `priority`. The
        owner is the index of that interval."""
        segments: list[tuple[int, int, int]] = []
        open_now: list[tuple[int, int, int]] = []  # a heap of (priority, end, index)
        now = int(start.min(initial=0))

        def advance(time: int) -> None:
            """Assigns the time from `now` to `time` to the open intervals."""
            nonlocal now
            while open_now and now < time:
                _, end_of_open, index = open_now[0]
                if (segment_end := min(end_of_open, time)) > now:
                    segments.append((now, segment_end, index))
                    now = segment_end
                if end_of_open <= time:  # else it stays open
                    heappop(open_now)
            now = max(now, time)

        order = np.argsort(start, kind="stable")
        for index, rank, begin, stop in zip(
            order.tolist(), priority[order].tolist(), start[order].tolist(), end[order].tolist(), strict=True
        ):
            advance(begin)
            heappush(open_now, (rank, stop, index))
        advance(int(end.max(initial=0)))
        return cls(*np.array(segments, np.int64).reshape(-1, 3).T)

    def owner_at(self, times: np.ndarray) -> np.ndarray:
        """The owner at each time, NONE between the intervals."""
        index = np.searchsorted(self.start, times, "right") - 1
        is_inside = (index >= 0) & (times < np.append(self.end, 0)[index])
        return np.where(is_inside, np.append(self.owner, NONE)[index], NONE)

    def overlaps(self, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The overlaps with other intervals: the index of the other, the owner, and the time that the two share."""
        index, own, starts, ends = overlapping_pairs(start, end, Intervals(self.start, self.end))
        return index, self.owner[own], ends - starts


class _Amount(NamedTuple):
    """Amounts of functions in phases or ranges; equal ones are added up."""

    column: str
    where: np.ndarray  # the number of the phase or range
    function: np.ndarray  # index into events.functions, or NONE
    amount: np.ndarray | int


class _Thread:
    """The calls and samples of one thread by function, and by phase or range."""

    def __init__(self, events: _Events, rows: np.ndarray):
        """`rows` are those of the thread's events."""
        self.is_sample = events.is_sample[rows]
        calls, samples = rows[~self.is_sample], rows[self.is_sample]
        self.start, self.end, self.function = events.start[calls], events.end[calls], events.function[calls]
        self.sampled, self.sampled_function = events.start[samples], events.function[samples]
        # At any moment, the thread is in the call that began last. Of calls that begin together, the shorter is inside.
        priority = np.empty(len(calls), np.int64)
        priority[np.lexsort((-self.end, self.start))] = -np.arange(len(calls))
        self.exclusive = _Owned.by_priority(self.start, self.end, priority)

    def by_phase(self, phases: _Phases, thread: int) -> Iterator[_Amount]:
        """The amounts by phase. A call is counted in the phase in which it begins, but its time is divided among all
        phases in which it runs."""
        opened, outside = phases.of_thread(thread), len(phases.names) - 1

        def phase_at(times: np.ndarray) -> np.ndarray:
            phase = opened.owner_at(times)
            return np.where(phase == NONE, outside, phase)

        def divided(column: str, start: np.ndarray, end: np.ndarray, function: np.ndarray) -> _Amount:
            """The time of these intervals, each of a function, by phase."""
            index, phase, shared = opened.overlaps(start, end)
            rest = end - start  # less what is in phases
            np.subtract.at(rest, index, shared)
            where = np.append(phase, np.full(len(function), outside))
            return _Amount(column, where, np.append(function[index], function), np.append(shared, rest))

        in_function, function = unions(self.start, self.end, self.function)  # recursive calls count once
        in_calls = divided("time_ns", in_function.start_ns, in_function.end_ns, function)
        start, end, call = self.exclusive
        yield _Amount("calls", phase_at(self.start), self.function, 1)
        yield in_calls
        yield divided("own_ns", start, end, self.function[call])
        # The time in no call, in those phases in which the thread has calls.
        covered, free = union(start, end), np.zeros(len(phases.names), np.int64)
        np.add.at(free, opened.owner, opened.end - opened.start)
        _, phase, shared = opened.overlaps(covered.start_ns, covered.end_ns)
        np.subtract.at(free, phase, shared)
        where = np.unique(np.append(in_calls.where[in_calls.amount > 0], phase_at(self.start)))
        for column in ("time_ns", "own_ns"):
            yield _Amount(column, where, np.full(len(where), NONE), free[where])
        yield from self._samples(phase_at(self.sampled))

    def by_range(self, where: np.ndarray) -> Iterator[_Amount]:
        """The amounts by range. `where` is the number of the range of each of the thread's events. A call counts with
        all of its time in the range in which it begins."""
        in_range, count = where[~self.is_sample], int(self.function.max(initial=0)) + 1
        keys, group = np.unique(in_range * count + self.function, return_inverse=True)
        in_group, group = unions(self.start, self.end, group.reshape(-1))
        start, end, call = self.exclusive
        yield _Amount("calls", in_range, self.function, 1)
        yield _Amount("time_ns", *np.divmod(keys[group], count), in_group.lengths_ns)
        yield _Amount("own_ns", in_range[call], self.function[call], end - start)
        yield from self._samples(where[self.is_sample])

    def _samples(self, where: np.ndarray) -> Iterator[_Amount]:
        """The samples, and those of them inside calls."""
        in_call = self.exclusive.owner_at(self.sampled) != NONE
        yield _Amount("samples", where, self.sampled_function, 1)
        yield _Amount("samples_in_calls", where, self.sampled_function, in_call.astype(np.int64))


class _Phases:
    """When each phase was open on each thread. `names` are the names of the phases by number, OUTSIDE last.

    A range inside a phase is no phase itself, even if it has the name of one.
    """

    def __init__(self, profile: Profile, step_name: str):
        ranges, paths = profile.capture.ranges, profile.paths
        labels = phases_and_parts(paths, step_name)[0]  # the phase of each path
        self.names = [*dict.fromkeys(label for label in labels if label != OUTSIDE), OUTSIDE]
        phases, kinds, numbers = [], [], {name: number for number, name in enumerate(self.names)}
        for path, label in zip(paths, labels, strict=True):
            is_phase = path[-1:] == (label,) != (OUTSIDE,)
            phases.append(numbers[label] if is_phase else NONE)
            # In order of priority: a phase in a step, a step, a phase outside of steps; any other range.
            kinds.append((0 if step_name in path else 2) if is_phase else 1 if path[-1:] == (step_name,) else 3)
        self._ranges, self._by_process = ranges, rows_by_value(process_of(ranges.thread))
        self._phase, self._kind = (np.array(values, np.int64)[profile.range_path] for values in (phases, kinds))
        by_thread = rows_by_value(ranges.thread)
        self._by_thread = {thread: rows for thread, rows in by_thread.items() if (self._phase[rows] != NONE).any()}
        self._cached: dict[int, _Owned] = {}  # by process, shared by many threads

    def of_thread(self, thread: int) -> _Owned:
        """When the phases were open that this thread opened; if it opened none, those of its process. Owners are the
        numbers of phases. A phase outside steps is interrupted by steps."""
        if thread in self._by_thread:
            return self._intervals(self._by_thread[thread])
        process = process_of(thread)
        if process not in self._cached:
            self._cached[process] = self._intervals(self._by_process.get(process, np.empty(0, np.int64)))
        return self._cached[process]

    def _intervals(self, ranges: np.ndarray) -> _Owned:
        """The phases of these ranges. Where several are open, phases in steps have priority, then steps (whose time
        belongs to no phase), then phases outside steps. Of two phases of a kind, the one that first began has it."""
        rows = ranges[self._kind[ranges] < 3]
        phase, kind = self._phase[rows], self._kind[rows]
        _, first, group = np.unique(kind * len(self.names) + phase, return_index=True, return_inverse=True)
        priority = kind * len(rows) + first[group.reshape(-1)]
        start, end, owner = _Owned.by_priority(self._ranges.start[rows], self._ranges.end[rows], priority)
        kept = phase[owner] != NONE
        return _Owned(start[kept], end[kept], phase[owner][kept])
