"""A trace in Chrome's JSON format, which ui.perfetto.dev and chrome://tracing open.

Tracks: each thread of each process with its ranges and launches, and each stream of each GPU with its activities and
their ranges. An arrow leads from a launch to its kernel. Times in the file are microseconds since the first event, with
decimals.
"""

import gzip
import json
from collections.abc import Iterator, Sequence
from itertools import chain, takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution.activities import KINDS
from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.limits import MOST_TEXT_OF_A_TIMELINE
from kernel_tables.attribution.path_text import as_path
from kernel_tables.attribution.paths import WINDOW
from kernel_tables.attribution.ranges import NONE
from kernel_tables.attribution.steps import aligned_clocks
from kernel_tables.reading.global_ids import BITS, process_number, process_of, thread_number
from kernel_tables.reading.schema import RUNTIME, WRITER_KEY

Stream = tuple[int, int, int]  # process, device, stream


class Stretch(NamedTuple):
    """A time in which a stream runs only activities of one range."""

    stream: Stream
    name: int
    start_ns: int
    end_ns: int


def stretches(trace: CaptureArrays, activities: np.ndarray) -> list[Stretch]:
    """The ranges of these activities on their streams; outer ranges precede inner ones with equal times."""
    rows = trace.gpu_activities
    node = trace.attribution.activity_node
    stream_columns = (rows.process, trace.places["device"], trace.places["stream"])
    order = activities[
        np.lexsort((rows.start_ns[activities], *(column[activities] for column in reversed(stream_columns))))
    ]
    columns = (column[order].tolist() for column in (*stream_columns, node, rows.start_ns, rows.end_ns))
    finished: list[Stretch] = []
    chains = _Chains(trace)
    stream, opened, last_ns = None, _OpenRanges(trace), 0
    for process, device, number, innermost, start_ns, end_ns in zip(*columns, strict=True):
        if (process, device, number) != stream:
            finished += opened.close(0, last_ns)
            stream = opened.stream = process, device, number
            last_ns = start_ns
        chain = chains.chain(innermost)
        common = _common(opened.chain, chain)
        finished += opened.close(common, last_ns)
        opened.open(chain, start_ns)
        last_ns = max(last_ns, end_ns)
    finished += opened.close(0, last_ns)
    return finished[::-1]  # inner ones were closed first


class _Chains:
    """The nodes of chains of ranges, outermost first."""

    def __init__(self, trace: CaptureArrays) -> None:
        self._parent = trace.attribution.parent
        self._chains: dict[int, tuple[int, ...]] = {NONE: ()}

    def chain(self, node: int) -> tuple[int, ...]:
        path = []
        while node not in self._chains:
            path.append(node)
            node = int(self._parent[node])
        for inner in reversed(path):
            self._chains[inner] = (*self._chains[node], inner)
            node = inner
        return self._chains[node]


class _OpenRanges:
    """The ranges that are open on a stream."""

    def __init__(self, trace: CaptureArrays) -> None:
        self._name_of = trace.range_arrays.name[trace.attribution.range]
        self.stream: Stream = (0, 0, 0)
        self.chain: tuple[int, ...] = ()
        self._since_ns: list[int] = []

    def open(self, chain: tuple[int, ...], start_ns: int) -> None:
        self._since_ns += [start_ns] * (len(chain) - len(self._since_ns))
        self.chain = chain

    def close(self, depth: int, end_ns: int) -> Iterator[Stretch]:
        while len(self._since_ns) > depth:
            name = int(self._name_of[self.chain[len(self._since_ns) - 1]])
            yield Stretch(self.stream, name, self._since_ns.pop(), end_ns)
        self.chain = self.chain[:depth]


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """The number of nodes that two chains share at their beginning."""
    pairs = zip(first, second, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


STREAM_TRACK = 1 << 24  # thread ids of the operating system are below this, tracks of streams above
RANGE_TRACK = 1 << 29  # and those of their ranges above these


class PlacedTrace(NamedTuple):
    """A capture on the common time axis, and those of its activities and ranges that are written."""

    trace: CaptureArrays
    activities: np.ndarray  # indices
    ranges: np.ndarray  # indices
    offset_ns: int  # to add to its times
    number: int  # among the captures
    count: int  # of the captures

    def us(self, time_ns: int) -> float:
        """A time of the capture in microseconds on the common axis."""
        return (time_ns + self.offset_ns) / 1000

    def pid(self, global_id: int) -> int:
        """The number of a process, with that of its capture: two captures may have the same process."""
        return (self.number << BITS) + process_number(global_id)


def write_timeline(
    traces: Sequence[CaptureArrays], path: Path, under: str | None = None, compressed: bool = True
) -> None:
    """Writes the traces to `path`, one below the other: ranges `under`, by default `measure` if it exists.

    Clocks of several captures are aligned (attribution/steps.py). The file is valid only when this returns: the
    captures are checked last.
    """
    if under is None and all(trace.range_paths.code(WINDOW) != NONE for trace in traces):
        under = WINDOW
    placed = _placed(traces, under)
    with gzip.open(path, "wt", 3, "utf-8") if compressed else path.open("w", encoding="utf-8") as file:
        file.write(f'{{"displayTimeUnit": "ns", "{WRITER_KEY}": "kernel-tables trace", "traceEvents": [\n')
        separator = ""
        for event in chain.from_iterable(map(_events, placed)):
            file.write(separator + json.dumps(event))
            separator = ",\n"
        file.write("\n]}\n")
    for trace in traces:
        trace.require_possible()


def _placed(traces: Sequence[CaptureArrays], under: str | None) -> list[PlacedTrace]:
    selections, offsets = [_selection(trace, under) for trace in traces], aligned_clocks(traces).offsets_ns
    firsts = [_first_ns(*selection) + offset for selection, offset in zip(selections, offsets, strict=True)]
    return [
        PlacedTrace(*selection, offset - min(firsts), number, len(traces))
        for number, (selection, offset) in enumerate(zip(selections, offsets, strict=True))
    ]


def _selection(trace: CaptureArrays, under: str | None) -> tuple[CaptureArrays, np.ndarray, np.ndarray]:
    """The trace, its activities and its ranges under this name; all of them if it is None."""
    activities, ranges = np.arange(len(trace.gpu_activities)), np.arange(len(trace.range_arrays))
    if under is not None:
        trace.require_range(under)
        inside = trace.range_paths.inside(under)
        activities = np.flatnonzero(inside[trace.activity_path])
        ranges = np.flatnonzero(inside[trace.range_paths.of_node[: len(ranges)]])
    trace.require_text(trace.activity_path[activities], trace.gpu_activities.name[activities], MOST_TEXT_OF_A_TIMELINE)
    return trace, activities, ranges


def _first_ns(trace: CaptureArrays, activities: np.ndarray, ranges: np.ndarray) -> int:
    times = [trace.gpu_activities.start_ns[activities], trace.range_arrays.start_ns[ranges]]
    return int(min((column.min() for column in times if len(column)), default=0))


def _events(placed: PlacedTrace) -> Iterator[dict]:
    yield from _range_events(placed)
    yield from _launch_events(placed)
    yield from _stretch_events(placed)
    yield from _activity_events(placed)
    yield from _track_names(placed)


def _range_events(placed: PlacedTrace) -> Iterator[dict]:
    ranges, names = placed.trace.range_arrays, placed.trace.range_names.names
    columns = (ranges.start_ns, ranges.end_ns, ranges.thread, ranges.name)
    for start, end, thread, name in zip(*(column[placed.ranges].tolist() for column in columns), strict=True):
        yield _slice(names[name], "range", start, end, placed, thread, thread_number(thread), {})


def _launch_events(placed: PlacedTrace) -> Iterator[dict]:
    """One slice per API call that launched something."""
    trace = placed.trace
    rows = np.unique(trace.gpu_activities.launch_row[placed.activities])
    rows = rows[rows != NONE]
    starts, threads = (trace.columns[RUNTIME][name][rows].tolist() for name in ("start", "thread"))
    ends, names = trace.capture.call_ends_and_names()
    for row, start, thread in zip(rows.tolist(), starts, threads, strict=True):
        yield _slice(names[row], "launch", start, int(ends[row]), placed, thread, thread_number(thread), {})


def _stretch_events(placed: PlacedTrace) -> Iterator[dict]:
    """The ranges of activities on GPUs; those of a processor are on the tracks of its threads."""
    trace, names = placed.trace, placed.trace.range_names.names
    on_gpu = placed.activities[trace.places["device"][placed.activities] >= 0]
    for (process, device, stream), name, start, end in stretches(trace, on_gpu):
        tid = RANGE_TRACK + _stream_track(device, stream)
        yield _slice(names[name], "range of a stream", start, end, placed, process, tid, {})


def _activity_events(placed: PlacedTrace) -> Iterator[dict]:
    trace, activities = placed.trace, placed.trace.gpu_activities
    paths, classes = trace.range_paths.tuples, trace.activity_classes
    columns = (
        activities.start_ns, activities.end_ns, activities.process, trace.places["device"], trace.places["stream"],
        activities.name, activities.kind, trace.activity_path, activities.launch_row, activities.launch_ns,
        activities.thread,
    )  # fmt: skip
    rows = zip(*(column[placed.activities].tolist() for column in columns), strict=True)
    for number, (start, end, process, device, stream, name, kind, path, row, launch, thread) in enumerate(rows):
        tid = _stream_track(device, stream)
        arguments = {"range": as_path(paths[path]), "class": classes[name], "device": device}
        yield _slice(activities.names[name], KINDS[kind], start, end, placed, process, tid, arguments)
        if row != NONE:
            arrow = {"id": number * placed.count + placed.number, "cat": "launch", "name": "launch"}
            begin = {"ts": placed.us(launch), "pid": placed.pid(thread), "tid": thread_number(thread)}
            yield arrow | {"ph": "s"} | begin
            yield arrow | {"ph": "f", "bp": "e", "ts": placed.us(start), "pid": placed.pid(process), "tid": tid}


def _track_names(placed: PlacedTrace) -> Iterator[dict]:
    trace, activities = placed.trace, placed.trace.gpu_activities
    launching = activities.thread[placed.activities][activities.launched[placed.activities]]
    threads = np.unique(np.append(trace.range_arrays.thread[placed.ranges], launching)).tolist()
    columns = (column[placed.activities].tolist() for column in (activities.process, *trace.places.values()))
    streams = sorted(set(zip(*columns, strict=True)))
    rank = f"rank {placed.number}, " if placed.count > 1 else ""
    for process in sorted({process_of(thread) for thread in threads} | {process for process, _, _ in streams}):
        yield _name("process_name", placed.pid(process), 0, f"{rank}process {process_number(process)}")
    for thread in threads:
        yield _name("thread_name", placed.pid(thread), thread_number(thread), f"thread {thread_number(thread)}")
    for process, device, stream in streams:
        tid, label = _stream_track(device, stream), f"{'CPU' if device < 0 else f'GPU {device}'}, stream {stream}"
        yield _name("thread_name", placed.pid(process), tid, label)
        if device >= 0:
            yield _name("thread_name", placed.pid(process), RANGE_TRACK + tid, f"{label}: ranges")


def _slice(
    name: str, category: str, start: int, end: int, placed: PlacedTrace, process: int, tid: int, arguments: dict
) -> dict:
    track = {"pid": placed.pid(process), "tid": tid, "ts": placed.us(start), "dur": (end - start) / 1000}
    return {"ph": "X", "name": name, "cat": category, **track, "args": arguments}


def _name(kind: str, pid: int, tid: int, name: str) -> dict:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _stream_track(device: int, stream: int) -> int:
    return STREAM_TRACK + (device + 1) * (1 << 16) + stream
