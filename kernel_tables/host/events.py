"""What a capture tells of the host, of all kinds in one set of columns, each with the ranges that it lies in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.keys import compact
from kernel_tables.attribution.paths import NO_RANGE, Paths
from kernel_tables.attribution.rule import Rule
from kernel_tables.host.sources import SAMPLED, SOURCES, UNKNOWN
from kernel_tables.reading.capture import Capture
from kernel_tables.reading.schema import MISSING, OSRT, RUNTIME, SAMPLE_FRAMES, SAMPLES

PYTHON_FILE = ".py"  # how the module of a Python frame ends


@dataclass(frozen=True)
class Events:
    """Calls and samples; a sample has no duration. `function` is an index into `functions`, `path` into `paths`."""

    source: np.ndarray  # index into SOURCES
    start_ns: np.ndarray
    end_ns: np.ndarray
    thread: np.ndarray  # global id
    function: np.ndarray
    functions: list[str]
    path: np.ndarray
    paths: list[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.start_ns)

    def periods_ns(self) -> np.ndarray:
        """By source the time between two samples of a thread, the median of all; NaN where there are no two."""
        order = np.lexsort((self.start_ns, self.thread, self.source))
        gaps = np.diff(self.start_ns[order])
        source, thread = self.source[order], self.thread[order]
        same = (source[1:] == source[:-1]) & (thread[1:] == thread[:-1])
        found = [gaps[same & (source[1:] == number) & sampled] for number, sampled in enumerate(SAMPLED)]
        return np.array([np.median(own) if len(own) else np.nan for own in found])


def read_events(trace: CaptureArrays) -> Events:
    """The events of a trace: of each source that the capture holds."""
    found = [_cuda(trace), _os_runtime(trace.capture), _python(trace.capture), _native_samples(trace.capture)]
    source = np.repeat(np.arange(len(SOURCES)), [len(part[0]) for part in found])
    start, end, thread = (np.concatenate([part[column] for part in found]) for column in range(3))
    names = [name for part in found for name in part[3]]
    distinct = {name: number for number, name in enumerate(dict.fromkeys(names))}
    function = np.array([distinct[name] for name in names], np.int64)
    path, paths = _paths(trace, start, thread)
    return Events(source, start, end, thread, function, list(distinct), path, paths)


def _cuda(trace: CaptureArrays) -> tuple:
    columns = trace.columns[RUNTIME]
    end_ns, ids, names = trace.capture.call_functions()
    return columns["start"], end_ns, columns["thread"], _named(ids, names)


def _os_runtime(capture: Capture) -> tuple:
    calls = capture.host_rows(OSRT)
    return calls["start"], calls["end"], calls["thread"], _named(calls["name_id"], capture.strings(calls["name_id"]))


def _python(capture: Capture) -> tuple:
    samples = capture.python_samples()
    at_ns, thread = (np.array([sample[column] for sample in samples], np.int64) for column in range(2))
    return at_ns, at_ns, thread, [sample.frames[0] if sample.frames else UNKNOWN for sample in samples]


def _native_samples(capture: Capture) -> tuple:
    """A sample is named by its innermost Python frame, or where it has none by its innermost function."""
    samples, frames = capture.host_rows(SAMPLES), capture.host_rows(SAMPLE_FRAMES)
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
    told = [names.get(sample, UNKNOWN) for sample in samples["id"].tolist()]
    return samples["start"], samples["start"], samples["thread"], told


def _named(ids: np.ndarray, names: dict[int, str]) -> list[str]:
    return [UNKNOWN if number == MISSING else names.get(number, UNKNOWN) for number in ids.tolist()]


def _paths(trace: CaptureArrays, start_ns: np.ndarray, thread: np.ndarray) -> tuple[np.ndarray, list]:
    """The path of each event by the rule that gives kernels their ranges, and the paths."""
    threads, index = compact(thread)
    ranges = trace.range_arrays
    if not len(ranges):
        return np.zeros(len(start_ns), np.int64), [()]
    attribution = Rule(ranges).attribution(start_ns, index, threads)
    paths = Paths(attribution, ranges.name, trace.range_names[1])
    return np.append(paths.of_node, NO_RANGE)[attribution.launch_node], paths.tuples
