"""Events of the host, all kinds in the same columns, each with the ranges around it."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution.arrays import factorize
from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.paths import NO_RANGE, Paths
from kernel_tables.attribution.rule import RangeAttributor
from kernel_tables.host import SAMPLED, SOURCES, UNKNOWN
from kernel_tables.reading.capture import Capture
from kernel_tables.reading.schema import HOST_COLUMNS, MISSING, OSRT, RUNTIME, SAMPLE_FRAMES, SAMPLES

PYTHON_FILE = ".py"  # the end of the module of a Python frame


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
    functions: list[str]  # a name occurs once per source that has it
    source_of_function: np.ndarray
    path: np.ndarray  # index into paths
    paths: list[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.start_ns)

    def period_ns(self) -> np.ndarray:
        """By source the median time between two samples of a thread, NaN if there are no two."""
        order = np.lexsort((self.start_ns, self.thread, self.source))
        gaps = np.diff(self.start_ns[order])
        source, thread = self.source[order], self.thread[order]
        same = (source[1:] == source[:-1]) & (thread[1:] == thread[:-1])
        spans = [gaps[same & (source[1:] == number) & sampled] for number, sampled in enumerate(SAMPLED)]
        return np.array([np.median(span) if len(span) else np.nan for span in spans])


def read_events(trace: CaptureArrays) -> Events:
    """The events of every source that the capture contains."""
    parts = [_cuda(trace), _os_runtime(trace.capture), _python(trace.capture), _native_samples(trace.capture)]
    source = np.repeat(np.arange(len(SOURCES)), [len(part.start_ns) for part in parts])
    start_ns, end_ns, thread = (np.concatenate([part[column] for part in parts]) for column in range(3))
    pairs = [(number, name) for number, part in enumerate(parts) for name in part.function]
    distinct = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    function = np.array([distinct[pair] for pair in pairs], np.int64)
    functions, source_of = [name for _, name in distinct], np.array([number for number, _ in distinct], np.int64)
    path, paths = _paths(trace, start_ns, thread)
    return Events(source, start_ns, end_ns, thread, function, functions, source_of, path, paths)


def _cuda(trace: CaptureArrays) -> SourceEvents:
    columns = trace.columns[RUNTIME]
    end_ns, ids, names = trace.capture.call_functions()
    return SourceEvents(columns["start"], end_ns, columns["thread"], _named(ids, names))


def _os_runtime(capture: Capture) -> SourceEvents:
    calls = capture.selected(OSRT, HOST_COLUMNS[OSRT])
    names = _named(calls["name_id"], capture.strings(calls["name_id"]))
    return SourceEvents(calls["start"], calls["end"], calls["thread"], names)


def _python(capture: Capture) -> SourceEvents:
    samples = capture.python_samples()
    time_ns, thread = (np.array([sample[column] for sample in samples], np.int64) for column in range(2))
    names = [sample.frames[0] if sample.frames else UNKNOWN for sample in samples]
    return SourceEvents(time_ns, time_ns, thread, names)


def _native_samples(capture: Capture) -> SourceEvents:
    """A sample is named by its innermost Python frame, or without one by its innermost function."""
    samples, frames = (capture.selected(table, HOST_COLUMNS[table]) for table in (SAMPLES, SAMPLE_FRAMES))
    symbols, modules = capture.strings(frames["symbol"]), capture.strings(frames["module"])
    names: dict[int, str] = {}
    order = np.lexsort((frames["depth"], frames["id"]))
    rows = zip(*(frames[column][order].tolist() for column in ("id", "symbol", "module")), strict=True)
    has_python: set[int] = set()
    for sample, symbol, module in rows:
        is_python = modules.get(module, "").endswith(PYTHON_FILE)
        if sample not in names or (is_python and sample not in has_python):
            names[sample] = symbols.get(symbol, UNKNOWN)
        if is_python:
            has_python.add(sample)
    functions = [names.get(sample, UNKNOWN) for sample in samples["id"].tolist()]
    return SourceEvents(samples["start"], samples["start"], samples["thread"], functions)


def _named(ids: np.ndarray, names: dict[int, str]) -> list[str]:
    return [UNKNOWN if number == MISSING else names.get(number, UNKNOWN) for number in ids.tolist()]


def _paths(trace: CaptureArrays, start_ns: np.ndarray, thread: np.ndarray) -> tuple[np.ndarray, list]:
    """The path of each event, by the rule of attribution, and the paths."""
    threads, index = factorize(thread)
    ranges = trace.range_arrays
    if not len(ranges):
        return np.zeros(len(start_ns), np.int64), [()]
    attribution = RangeAttributor(ranges).attribution(start_ns, index, threads)
    paths = Paths(attribution, ranges.name, trace.range_names.names)
    return np.append(paths.of_node, NO_RANGE)[attribution.launch_node], paths.tuples
