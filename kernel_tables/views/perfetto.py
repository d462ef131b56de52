"""A trace in Chrome's JSON format, which ui.perfetto.dev and chrome://tracing open.

Tracks: each thread of each process with its ranges and launches, and each stream of each device with what ran on it.
An arrow leads from a launch to its kernel. Times in the file are microseconds from the first event; ns are decimals.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from kernel_tables.attribution.activities import KINDS
from kernel_tables.attribution.limits import MOST_TEXT_OF_A_TIMELINE
from kernel_tables.attribution.paths import PATH_SEPARATOR, WINDOW
from kernel_tables.attribution.ranges import NONE
from kernel_tables.reading.global_ids import process_number, thread_number
from kernel_tables.reading.schema import RUNTIME

if TYPE_CHECKING:
    from kernel_tables.attribution.capture_arrays import CaptureArrays

STREAM_TRACK = 1 << 24  # thread ids of the operating system are below this, tracks of streams above


def write_timeline(trace: CaptureArrays, path: Path, under: str | None, compressed: bool = True) -> None:
    """Writes the trace to PATH: what lies under ranges UNDER, by default `measure` where there is such a range.

    The file is to be believed only when this returns: the capture is proven sound last.
    """
    if under is None and trace.range_paths.code(WINDOW) != NONE:
        under = WINDOW
    events = _events(trace, under)
    with gzip.open(path, "wt", 3, "utf-8") if compressed else path.open("w", encoding="utf-8") as file:
        _write_events(file, events)
    trace.capture.require_sound()


def _write_events(file: TextIO, events: Iterator[dict]) -> None:
    file.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
    separator = ""
    for event in events:
        file.write(separator + json.dumps(event))
        separator = ",\n"
    file.write("\n]}\n")


def _events(trace: CaptureArrays, under: str | None) -> Iterator[dict]:
    kept = np.ones(len(trace.gpu_activities), bool)
    instances = np.ones(len(trace.range_arrays), bool)
    if under is not None:
        trace.require_range(under)
        inside = trace.range_paths.inside(under)
        kept = inside[trace.activity_path]
        instances = inside[trace.range_paths.of_node[: len(trace.range_arrays)]]
    activities, ranges = np.flatnonzero(kept), np.flatnonzero(instances)
    times = [trace.gpu_activities.start_ns[activities], trace.range_arrays.start_ns[ranges]]
    first_ns = int(min((column.min() for column in times if len(column)), default=0))
    trace.require_text(trace.activity_path[activities], trace.gpu_activities.name[activities], MOST_TEXT_OF_A_TIMELINE)
    yield from _range_events(trace, ranges, first_ns)
    yield from _launch_events(trace, activities, first_ns)
    yield from _activity_events(trace, activities, first_ns)
    yield from _track_names(trace, activities, ranges)


def _range_events(trace: CaptureArrays, numbers: np.ndarray, first_ns: int) -> Iterator[dict]:
    found, names = trace.range_arrays, trace.range_names[1]
    columns = (found.start_ns, found.end_ns, found.thread, found.name)
    for start, end, thread, name in zip(*(column[numbers].tolist() for column in columns), strict=True):
        yield _slice(names[name], "range", start, end, first_ns, process_number(thread), thread_number(thread), {})


def _launch_events(trace: CaptureArrays, activities: np.ndarray, first_ns: int) -> Iterator[dict]:
    """One slice per API call that launched something."""
    rows = np.unique(trace.gpu_activities.launch_row[activities])
    rows = rows[rows != NONE]
    starts, threads = (trace.columns[RUNTIME][name][rows].tolist() for name in ("start", "thread"))
    ends, names = trace.capture.call_ends_and_names()
    for row, start, thread in zip(rows.tolist(), starts, threads, strict=True):
        yield _slice(
            names[row], "launch", start, int(ends[row]), first_ns, process_number(thread), thread_number(thread), {}
        )


def _activity_events(trace: CaptureArrays, activities: np.ndarray, first_ns: int) -> Iterator[dict]:
    found, paths, classes = trace.gpu_activities, trace.range_paths.tuples, trace.activity_classes
    columns = (
        found.start_ns, found.end_ns, found.process, trace.places["device"], trace.places["stream"],
        found.name, found.kind, trace.activity_path, found.launch_row, found.launch_ns, found.thread,
    )  # fmt: skip
    rows = zip(*(column[activities].tolist() for column in columns), strict=True)
    for number, (start, end, process, device, stream, name, kind, path, row, launch, thread) in enumerate(rows):
        pid, tid = process_number(process), _stream_track(device, stream)
        arguments = {"range": PATH_SEPARATOR.join(paths[path]), "class": classes[name], "device": device}
        yield _slice(found.names[name], KINDS[kind], start, end, first_ns, pid, tid, arguments)
        if row != NONE:
            arrow = {"id": number, "cat": "launch", "name": "launch"}
            yield arrow | {
                "ph": "s",
                "ts": _us(launch, first_ns),
                "pid": process_number(thread),
                "tid": thread_number(thread),
            }
            yield arrow | {"ph": "f", "bp": "e", "ts": _us(start, first_ns), "pid": pid, "tid": tid}


def _track_names(trace: CaptureArrays, activities: np.ndarray, ranges: np.ndarray) -> Iterator[dict]:
    found = trace.gpu_activities
    launching = found.thread[activities][found.launched[activities]]
    threads = np.unique(np.concatenate([trace.range_arrays.thread[ranges], launching])).tolist()
    streams = {
        (process_number(process), device, stream)
        for process, device, stream in zip(
            *(column[activities].tolist() for column in (found.process, *trace.places.values())), strict=True
        )
    }
    for pid in sorted({process_number(thread) for thread in threads} | {pid for pid, _, _ in streams}):
        yield _name("process_name", pid, 0, f"process {pid}")
    for thread in threads:
        yield _name("thread_name", process_number(thread), thread_number(thread), f"thread {thread_number(thread)}")
    for pid, device, stream in sorted(streams):
        where = "CPU" if device < 0 else f"GPU {device}"
        yield _name("thread_name", pid, _stream_track(device, stream), f"{where}, stream {stream}")


def _slice(name: str, category: str, start: int, end: int, first_ns: int, pid: int, tid: int, arguments: dict) -> dict:
    times = {"ts": _us(start, first_ns), "dur": (end - start) / 1000}
    return {"ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid, **times, "args": arguments}


def _name(kind: str, pid: int, tid: int, name: str) -> dict:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _us(time_ns: int, first_ns: int) -> float:
    return (time_ns - first_ns) / 1000


def _stream_track(device: int, stream: int) -> int:
    return STREAM_TRACK + (device + 1) * (1 << 16) + stream
