"""A trace in Chrome's JSON format, which ui.perfetto.dev and chrome://tracing open.

Tracks: each thread of each process with its ranges and launches, and each stream of each GPU with the ranges of what
ran on it, and with what ran on it.
An arrow leads from a launch to its kernel. Times in the file are microseconds from the first event; ns are decimals.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

import numpy as np

from kernel_tables.attribution.activities import KINDS
from kernel_tables.attribution.limits import MOST_TEXT_OF_A_TIMELINE
from kernel_tables.attribution.path_text import as_path
from kernel_tables.attribution.paths import WINDOW
from kernel_tables.attribution.ranges import NONE
from kernel_tables.attribution.steps import offsets_ns
from kernel_tables.reading.global_ids import BITS, process_number, process_of, thread_number
from kernel_tables.reading.schema import RUNTIME, WRITER_KEY
from kernel_tables.views.range_tracks import stretches

if TYPE_CHECKING:
    from kernel_tables.attribution.capture_arrays import CaptureArrays

STREAM_TRACK = 1 << 24  # thread ids of the operating system are below this, tracks of streams above
RANGE_TRACK = 1 << 29  # and those of their ranges above these


class Placed(NamedTuple):
    """One capture on the time axis of several: what is added to its times, its number among them, how many they are."""

    trace: CaptureArrays
    offset_ns: int
    number: int
    count: int

    def us(self, time_ns: int) -> float:
        """A time of the capture's own clock, in microseconds on the axis."""
        return (time_ns + self.offset_ns) / 1000

    def pid(self, global_id: int) -> int:
        """The number of a process, with that of its capture before it: two captures may have the same process."""
        return (self.number << BITS) + process_number(global_id)


def write_timeline(
    traces: Sequence[CaptureArrays], path: Path, under: str | None = None, compressed: bool = True
) -> None:
    """Writes the traces to PATH, one below the other: what lies under ranges UNDER, by default `measure` where there is
    such a range. Clocks of several captures are aligned by what they say (attribution/clocks.py).

    The file is to be believed only when this returns: the captures are proven sound last.
    """
    if under is None and all(trace.range_paths.code(WINDOW) != NONE for trace in traces):
        under = WINDOW
    events = _events(traces, under)
    with gzip.open(path, "wt", 3, "utf-8") if compressed else path.open("w", encoding="utf-8") as file:
        _write_events(file, events)
    for trace in traces:
        trace.require_possible()


def _write_events(file: TextIO, events: Iterator[dict]) -> None:
    file.write(f'{{"displayTimeUnit": "ns", "{WRITER_KEY}": "kernel-tables trace", "traceEvents": [\n')
    separator = ""
    for event in events:
        file.write(separator + json.dumps(event))
        separator = ",\n"
    file.write("\n]}\n")


def _events(traces: Sequence[CaptureArrays], under: str | None) -> Iterator[dict]:
    kept = [_kept(trace, under) for trace in traces]
    offsets, _ = offsets_ns(traces)
    first_ns = min((_first_ns(*one) + offset for one, offset in zip(kept, offsets, strict=True)), default=0)
    for number, (trace, activities, ranges) in enumerate(kept):
        placed = Placed(trace, offsets[number] - first_ns, number, len(traces))
        yield from _range_events(placed, ranges)
        yield from _launch_events(placed, activities)
        yield from _stretch_events(placed, activities)
        yield from _activity_events(placed, activities)
        yield from _track_names(placed, activities, ranges)


def _kept(trace: CaptureArrays, under: str | None) -> tuple[CaptureArrays, np.ndarray, np.ndarray]:
    """The trace, and of it the activities and the ranges that lie under the name; all of them without one."""
    kept = np.ones(len(trace.gpu_activities), bool)
    instances = np.ones(len(trace.range_arrays), bool)
    if under is not None:
        trace.require_range(under)
        inside = trace.range_paths.inside(under)
        kept = inside[trace.activity_path]
        instances = inside[trace.range_paths.of_node[: len(trace.range_arrays)]]
    activities = np.flatnonzero(kept)
    trace.require_text(trace.activity_path[activities], trace.gpu_activities.name[activities], MOST_TEXT_OF_A_TIMELINE)
    return trace, activities, np.flatnonzero(instances)


def _first_ns(trace: CaptureArrays, activities: np.ndarray, ranges: np.ndarray) -> int:
    times = [trace.gpu_activities.start_ns[activities], trace.range_arrays.start_ns[ranges]]
    return int(min((column.min() for column in times if len(column)), default=0))


def _range_events(placed: Placed, numbers: np.ndarray) -> Iterator[dict]:
    found, names = placed.trace.range_arrays, placed.trace.range_names.names
    columns = (found.start_ns, found.end_ns, found.thread, found.name)
    for start, end, thread, name in zip(*(column[numbers].tolist() for column in columns), strict=True):
        yield _slice(names[name], "range", start, end, placed, thread, thread_number(thread), {})


def _launch_events(placed: Placed, activities: np.ndarray) -> Iterator[dict]:
    """One slice per API call that launched something."""
    trace = placed.trace
    rows = np.unique(trace.gpu_activities.launch_row[activities])
    rows = rows[rows != NONE]
    starts, threads = (trace.columns[RUNTIME][name][rows].tolist() for name in ("start", "thread"))
    ends, names = trace.capture.call_ends_and_names()
    for row, start, thread in zip(rows.tolist(), starts, threads, strict=True):
        yield _slice(names[row], "launch", start, int(ends[row]), placed, thread, thread_number(thread), {})


def _stretch_events(placed: Placed, activities: np.ndarray) -> Iterator[dict]:
    """The ranges of what ran on GPUs. On a processor they are those of its threads."""
    trace = placed.trace
    on_gpu = activities[trace.places["device"][activities] >= 0]
    for (process, device, stream), name, start, end in stretches(trace, on_gpu):
        tid = RANGE_TRACK + _stream_track(device, stream)
        yield _slice(trace.range_names.names[name], "range of a stream", start, end, placed, process, tid, {})


def _activity_events(placed: Placed, activities: np.ndarray) -> Iterator[dict]:
    trace = placed.trace
    found, paths, classes = trace.gpu_activities, trace.range_paths.tuples, trace.activity_classes
    columns = (
        found.start_ns, found.end_ns, found.process, trace.places["device"], trace.places["stream"],
        found.name, found.kind, trace.activity_path, found.launch_row, found.launch_ns, found.thread,
    )  # fmt: skip
    rows = zip(*(column[activities].tolist() for column in columns), strict=True)
    for number, (start, end, process, device, stream, name, kind, path, row, launch, thread) in enumerate(rows):
        tid = _stream_track(device, stream)
        arguments = {"range": as_path(paths[path]), "class": classes[name], "device": device}
        yield _slice(found.names[name], KINDS[kind], start, end, placed, process, tid, arguments)
        if row != NONE:
            arrow = {"id": number * placed.count + placed.number, "cat": "launch", "name": "launch"}
            begin = {"ts": placed.us(launch), "pid": placed.pid(thread), "tid": thread_number(thread)}
            yield arrow | {"ph": "s"} | begin
            yield arrow | {"ph": "f", "bp": "e", "ts": placed.us(start), "pid": placed.pid(process), "tid": tid}


def _track_names(placed: Placed, activities: np.ndarray, ranges: np.ndarray) -> Iterator[dict]:
    trace, found = placed.trace, placed.trace.gpu_activities
    launching = found.thread[activities][found.launched[activities]]
    threads = np.unique(np.concatenate([trace.range_arrays.thread[ranges], launching])).tolist()
    columns = (column[activities].tolist() for column in (found.process, *trace.places.values()))
    streams = {(process, device, stream) for process, device, stream in zip(*columns, strict=True)}
    of_rank = f"rank {placed.number}, " if placed.count > 1 else ""
    for process in sorted({process_of(thread) for thread in threads} | {process for process, _, _ in streams}):
        yield _name("process_name", placed.pid(process), 0, f"{of_rank}process {process_number(process)}")
    for thread in threads:
        yield _name("thread_name", placed.pid(thread), thread_number(thread), f"thread {thread_number(thread)}")
    for process, device, stream in sorted(streams):
        where = "CPU" if device < 0 else f"GPU {device}"
        tid, label = _stream_track(device, stream), f"{where}, stream {stream}"
        yield _name("thread_name", placed.pid(process), tid, label)
        if device >= 0:
            yield _name("thread_name", placed.pid(process), RANGE_TRACK + tid, f"{label}: ranges")


def _slice(
    name: str, category: str, start: int, end: int, placed: Placed, process: int, tid: int, arguments: dict
) -> dict:
    times = {"ts": placed.us(start), "dur": (end - start) / 1000}
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": placed.pid(process),
        "tid": tid,
        **times,
        "args": arguments,
    }


def _name(kind: str, pid: int, tid: int, name: str) -> dict:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _stream_track(device: int, stream: int) -> int:
    return STREAM_TRACK + (device + 1) * (1 << 16) + stream
