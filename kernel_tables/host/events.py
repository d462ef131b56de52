"""Events of the host: calls and samples of all sources in the same columns, each with the ranges around it. And time
without overlaps, as intervals each of which belongs to one event.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution import arrays, capture_arrays, rule
from kernel_tables.attribution.paths import NO_RANGE, Paths
from kernel_tables.host import SAMPLED, SOURCES, UNKNOWN
from kernel_tables.intervals import Intervals, overlapping_pairs
from kernel_tables.reading.capture import Capture
from kernel_tables.reading.schema import HOST_COLUMNS, MISSING, OSRT, RUNTIME, SAMPLE_FRAMES, SAMPLES

PYTHON_SUFFIX = ".py"  # of the module of a Python frame, which is its file
NO_OWNER = -1


class SourceEvents(NamedTuple):
    """The calls or samples of one source; a sample has no duration."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    thread: np.ndarray  # global id
    function: list[str]


@dataclass(frozen=True)
class Events:
    """Calls and samples of all sources."""

    source: np.ndarray  # index into SOURCES
    start_ns: np.ndarray
    end_ns: np.ndarray
    thread: np.ndarray  # global id
    function: np.ndarray  # index into functions
    functions: list[str]  # a name occurs once for each source that has it
    source_of_function: np.ndarray
    path: np.ndarray  # index into paths
    paths: list[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.start_ns)

    def period_ns(self) -> np.ndarray:
        """By source, the median time from a sample to the next on its thread; NaN for calls, or without two samples."""
        order = np.lexsort((self.start_ns, self.thread, self.source))
        gaps = np.diff(self.start_ns[order])
        source, thread = self.source[order], self.thread[order]
        same = (source[1:] == source[:-1]) & (thread[1:] == thread[:-1])
        gaps_by_source = [gaps[same & (source[1:] == number) & is_sampled] for number, is_sampled in enumerate(SAMPLED)]
        return np.array([np.median(source_gaps) if len(source_gaps) else np.nan for source_gaps in gaps_by_source])


def read_events(trace: capture_arrays.CaptureArrays) -> Events:
    """The events of every source that the capture contains."""
    capture = trace.capture
    sources = [_cuda_calls(trace), _os_calls(capture), _python_samples(capture), _native_samples(capture)]
    source = np.repeat(np.arange(len(SOURCES)), [len(events.start_ns) for events in sources])
    start_ns = np.concatenate([events.start_ns for events in sources])
    end_ns = np.concatenate([events.end_ns for events in sources])
    thread = np.concatenate([events.thread for events in sources])
    pairs = [(number, name) for number, events in enumerate(sources) for name in events.function]
    distinct = {pair: code for code, pair in enumerate(dict.fromkeys(pairs))}
    function = np.array([distinct[pair] for pair in pairs], np.int64)
    functions, source_of = [name for _, name in distinct], np.array([number for number, _ in distinct], np.int64)
    path, paths = _paths(trace, start_ns, thread)
    return Events(source, start_ns, end_ns, thread, function, functions, source_of, path, paths)


def _cuda_calls(trace: capture_arrays.CaptureArrays) -> SourceEvents:
    columns = trace.columns[RUNTIME]
    end_ns, ids, names = trace.capture.call_functions()
    return SourceEvents(columns["start"], end_ns, trace.call_threads, _function_names(ids, names))


def _os_calls(capture: Capture) -> SourceEvents:
    calls = capture.read_columns(OSRT, HOST_COLUMNS[OSRT])
    names = _function_names(calls["name_id"], capture.strings(calls["name_id"]))
    return SourceEvents(calls["start"], calls["end"], calls["thread"], names)


def _python_samples(capture: Capture) -> SourceEvents:
    samples = capture.python_samples()
    time_ns = np.array([sample.at_ns for sample in samples], np.int64)
    thread = np.array([sample.thread for sample in samples], np.int64)
    names = [sample.frames[0] if sample.frames else UNKNOWN for sample in samples]
    return SourceEvents(time_ns, time_ns, thread, names)


def _native_samples(capture: Capture) -> SourceEvents:
    """Samples, each with its innermost Python frame; without one, with its innermost function."""
    samples, frames = (capture.read_columns(table, HOST_COLUMNS[table]) for table in (SAMPLES, SAMPLE_FRAMES))
    symbols, modules = capture.strings(frames["symbol"]), capture.strings(frames["module"])
    names: dict[int, str] = {}
    order = np.lexsort((frames["depth"], frames["id"]))  # by sample, the innermost frame first
    rows = zip(*(frames[column][order].tolist() for column in ("id", "symbol", "module")), strict=True)
    has_python: set[int] = set()
    for sample, symbol, module in rows:
        is_python = modules.get(module, "").endswith(PYTHON_SUFFIX)
        if sample not in names or (is_python and sample not in has_python):
            names[sample] = symbols.get(symbol, UNKNOWN)
        if is_python:
            has_python.add(sample)
    functions = [names.get(sample, UNKNOWN) for sample in samples["id"].tolist()]
    return SourceEvents(samples["start"], samples["start"], samples["thread"], functions)


def _function_names(ids: np.ndarray, names: dict[int, str]) -> list[str]:
    return [UNKNOWN if number == MISSING else names.get(number, UNKNOWN) for number in ids.tolist()]


def _paths(trace: capture_arrays.CaptureArrays, start_ns: np.ndarray, thread: np.ndarray) -> tuple[np.ndarray, list]:
    """The path of each event, by the rule of attribution, and the paths."""
    threads, index = arrays.factorize(thread)
    ranges = trace.range_arrays
    if not len(ranges):
        return np.zeros(len(start_ns), np.int64), [()]
    attribution = rule.RangeAttributor(ranges).attribution(start_ns, index, threads)
    paths = Paths(attribution, ranges.name, trace.range_names)
    return np.append(paths.of_node, NO_RANGE)[attribution.launch_node], paths.tuples


class Overlaps(NamedTuple):
    """The overlaps of other intervals with OwnedIntervals, one per pair that shares time."""

    interval_index: np.ndarray  # of the other interval
    owner: np.ndarray
    time_ns: np.ndarray  # that the two share


class OwnedIntervals(NamedTuple):
    """Intervals in order of time that do not overlap, and the number of the owner of each."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    owner: np.ndarray

    def owner_at(self, times_ns: np.ndarray) -> np.ndarray:
        """The owner of each of `times_ns`, NO_OWNER between the intervals."""
        index = np.searchsorted(self.start_ns, times_ns, "right") - 1
        is_inside = (index >= 0) & (times_ns < np.append(self.end_ns, 0)[index])
        return np.where(is_inside, np.append(self.owner, NO_OWNER)[index], NO_OWNER)

    def renumbered(self, new_owner: np.ndarray) -> "OwnedIntervals":
        """These intervals with a new number for each owner; intervals whose new owner is NO_OWNER are dropped."""
        owner = new_owner[self.owner]
        has_owner = owner != NO_OWNER
        return OwnedIntervals(self.start_ns[has_owner], self.end_ns[has_owner], owner[has_owner])

    def overlaps(self, start_ns: np.ndarray, end_ns: np.ndarray) -> Overlaps:
        """The overlaps with the given intervals, which may be in any order."""
        index, own_index, starts_ns, ends_ns = overlapping_pairs(
            start_ns, end_ns, Intervals(self.start_ns, self.end_ns)
        )
        return Overlaps(index, self.owner[own_index], ends_ns - starts_ns)


def by_priority(start_ns: np.ndarray, end_ns: np.ndarray, priority: np.ndarray) -> OwnedIntervals:
    """The time that the intervals cover. Each moment belongs to the open interval with the lowest `priority`. The owner
    is the index of that interval."""
    segments: list[tuple[int, int, int]] = []
    open_now: list[tuple[int, int, int]] = []  # a heap of (priority, end, index)
    now = int(start_ns.min(initial=0))

    def advance(time_ns: int) -> None:
        """Assigns the time from `now` to `time_ns` to the open intervals."""
        nonlocal now
        while open_now and now < time_ns:
            _, end, index = open_now[0]
            segment_end = min(end, time_ns)
            if segment_end > now:
                segments.append((now, segment_end, index))
                now = segment_end
            if end <= time_ns:  # else it stays open
                heappop(open_now)
        now = max(now, time_ns)

    order = np.argsort(start_ns, kind="stable")
    columns = (order, priority[order], start_ns[order], end_ns[order])
    for index, rank, start, end in zip(*(column.tolist() for column in columns), strict=True):
        advance(start)
        heappush(open_now, (rank, end, index))
    advance(int(end_ns.max(initial=0)))
    return OwnedIntervals(*np.array(segments, np.int64).reshape(-1, 3).T)


def exclusive_time(start_ns: np.ndarray, end_ns: np.ndarray) -> OwnedIntervals:
    """The time of a thread's calls without the calls inside them: at any moment, the thread is in the call that began
    last. Of calls that begin together, the shorter one is inside the longer. Owners are indices of calls."""
    priority = np.empty(len(start_ns), np.int64)
    priority[np.lexsort((-end_ns, start_ns))] = -np.arange(len(start_ns))
    return by_priority(start_ns, end_ns, priority)
