"""The timeline of captures in Chrome's JSON format, which ui.perfetto.dev and chrome://tracing open.

Tracks: each thread of each process with its ranges and launches, and each stream of each GPU with its activities and
their ranges. Slices that overlap without nesting are on further tracks (timeline.py). An arrow leads from a launch to
its kernel. Times in the file are microseconds since the first event, with decimals.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from kernel_tables.attribution.activities import KINDS
from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.launches import NO_LAUNCH
from kernel_tables.attribution.limits import MAX_TIMELINE_CHARACTERS
from kernel_tables.attribution.path_text import as_path
from kernel_tables.attribution.paths import WINDOW
from kernel_tables.attribution.ranges import NONE
from kernel_tables.attribution.steps import clock_offsets_ns
from kernel_tables.global_ids import NUMBER_BITS, process_number, process_of, thread_number
from kernel_tables.ranks.ranks import numbers_in_run
from kernel_tables.reading.schema import WRITER_KEY
from kernel_tables.views.timeline import Lanes, Stream, Track, call_rows, range_rows, stretches

STREAM_TRACK = 1 << 24  # the first number of tracks of streams; threads have their ids, which are below
RANGE_TRACK = 1 << 29  # the first number of tracks of ranges of streams


class TraceView(NamedTuple):
    """A capture on the common time axis, and the activities and ranges that are written."""

    trace: CaptureArrays
    activities: np.ndarray  # indices
    ranges: np.ndarray  # indices
    offset_ns: int  # from its clock to the common axis
    rank: int
    index: int  # of the capture among all
    capture_count: int

    def us(self, time_ns: int) -> float:
        """A time of the capture in microseconds on the common axis."""
        return (time_ns + self.offset_ns) / 1000

    def pid(self, global_id: int) -> int:
        """The number of a process, with that of its capture: two captures may have the same process."""
        return (self.index << NUMBER_BITS) + process_number(global_id)

    def thread_track(self, thread: int) -> Track:
        return Track(self.pid(thread), thread_number(thread))


def write_timeline(
    traces: Sequence[CaptureArrays], path: Path, under: str | None = None, compressed: bool = True
) -> None:
    """Writes the traces to `path`, one below the other, and of each only what is in a range `under`: by default in
    `measure`, if each trace has it, else all.

    Clocks of several captures are aligned (attribution/steps.py). The file is valid only when this returns: the
    captures are checked last.
    """
    if under is None and all(trace.range_paths.code(WINDOW) != NONE for trace in traces):
        under = WINDOW
    views = _views(traces, under)
    with gzip.open(path, "wt", 3, "utf-8") if compressed else path.open("w", encoding="utf-8") as file:
        file.write(f'{{"displayTimeUnit": "ns", "{WRITER_KEY}": "kernel-tables trace", "traceEvents": [\n')
        separator = ""
        for event in chain.from_iterable(map(_events, views)):
            file.write(separator + json.dumps(event))
            separator = ",\n"
        file.write("\n]}\n")
    for trace in traces:
        trace.require_possible()


def _views(traces: Sequence[CaptureArrays], under: str | None) -> list[TraceView]:
    selections, offsets = [_selection(trace, under) for trace in traces], clock_offsets_ns(traces)
    ranks = numbers_in_run(traces) or range(len(traces))  # the position, if captures do not name their ranks
    starts_ns = [_first_ns(*selection) + offset for selection, offset in zip(selections, offsets, strict=True)]
    return [
        TraceView(*selection, offset - min(starts_ns), rank, index, len(traces))
        for index, (selection, offset, rank) in enumerate(zip(selections, offsets, ranks, strict=True))
    ]


def _selection(trace: CaptureArrays, under: str | None) -> tuple[CaptureArrays, np.ndarray, np.ndarray]:
    """The trace, its activities and its ranges under this name; all of them if it is None."""
    activities, ranges = np.arange(len(trace.gpu_activities)), np.arange(len(trace.range_arrays))
    if under is not None:
        trace.require_range(under)
        inside = trace.range_paths.is_inside(under)
        activities = np.flatnonzero(inside[trace.activity_path])
        ranges = np.flatnonzero(inside[trace.range_paths.of_node[: len(ranges)]])
    trace.require_text(trace.activity_path[activities], trace.gpu_activities.name[activities], MAX_TIMELINE_CHARACTERS)
    return trace, activities, ranges


def _first_ns(trace: CaptureArrays, activities: np.ndarray, ranges: np.ndarray) -> int:
    """The first start of these activities, of their launches, and of these ranges; 0 if there are none."""
    arrays = trace.gpu_activities
    launch_ns = arrays.launch_ns_of(activities[arrays.has_launch[activities]])
    times = [arrays.start_ns[activities], launch_ns, trace.range_arrays.start_ns[ranges]]
    return int(min((column.min() for column in times if len(column)), default=0))


def _events(view: TraceView) -> Iterator[dict]:
    streams = {stream: number for number, stream in enumerate(_streams(view))}
    tracks_of_launches: dict[int, Track] = {}
    lanes = Lanes()
    yield from _host_events(view, lanes, tracks_of_launches)
    yield from _stretch_events(view, lanes, streams)
    yield from _activity_events(view, lanes, streams, tracks_of_launches)
    yield from _track_names(view, lanes, streams)


def _host_events(view: TraceView, lanes: Lanes, tracks_of_launches: dict[int, Track]) -> Iterator[dict]:
    """The slices of the ranges, and of the API calls that launched something. The tracks of these calls are put into
    `tracks_of_launches`, by the row of the call."""
    columns = ["thread", "name", "track", "start_ns", "end_ns", "call"]
    ranges, calls = range_rows(view.trace, view.ranges), call_rows(view.trace, view.activities)
    rows = pd.concat([ranges[columns], calls[columns]])
    del ranges, calls  # else they stay in memory while the events are written
    rows = rows.sort_values(["start_ns", "end_ns"], ascending=[True, False], kind="stable")
    for thread, name, category, start_ns, end_ns, call in rows.itertuples(index=False, name=None):
        event = _slice(view, lanes, view.thread_track(thread), name, category, start_ns, end_ns)
        tracks_of_launches[call] = Track(event["pid"], event["tid"])
        yield event


def _streams(view: TraceView) -> list[Stream]:
    columns = (column[view.activities] for column in (view.trace.gpu_activities.process, *view.trace.places.values()))
    return sorted(set(zip(*(column.tolist() for column in columns), strict=True)))


def _stretch_events(view: TraceView, lanes: Lanes, streams: dict[Stream, int]) -> Iterator[dict]:
    """The slices of the ranges of GPUs' activities. A program on a CPU has its ranges only on the tracks of threads."""
    names = view.trace.range_names
    on_gpu = view.activities[view.trace.places["device"][view.activities] >= 0]
    for stream, name, start_ns, end_ns in stretches(view.trace, on_gpu):
        track = Track(view.pid(stream[0]), RANGE_TRACK + streams[stream])
        yield _slice(view, lanes, track, names[name], "range of a stream", start_ns, end_ns)


def _activity_events(
    view: TraceView, lanes: Lanes, streams: dict[Stream, int], tracks_of_launches: dict[int, Track]
) -> Iterator[dict]:
    trace, activities = view.trace, view.trace.gpu_activities
    paths, classes = trace.range_paths.tuples, trace.activity_classes
    order = view.activities[np.lexsort((-activities.end_ns[view.activities], activities.start_ns[view.activities]))]
    columns = (
        activities.start_ns, activities.end_ns, activities.process, trace.places["device"], trace.places["stream"],
        activities.name, activities.kind, trace.activity_path, activities.launch_row, activities.launch_ns,
    )  # fmt: skip
    rows = zip(*(column[order].tolist() for column in columns), strict=True)
    for number, (start_ns, end_ns, process, device, stream, name, kind, path, call, launch_ns) in enumerate(rows):
        track = Track(view.pid(process), STREAM_TRACK + streams[process, device, stream])
        arguments = {"range": as_path(paths[path]), "class": classes[name], "device": device}
        event = _slice(view, lanes, track, activities.names[name], KINDS[kind], start_ns, end_ns, arguments)
        yield event
        if call != NO_LAUNCH:
            arrow = {"id": number * view.capture_count + view.index, "cat": "launch", "name": "launch"}
            yield arrow | {"ph": "s", "ts": view.us(launch_ns)} | tracks_of_launches[call]._asdict()
            yield arrow | {"ph": "f", "bp": "e"} | {key: event[key] for key in ("ts", "pid", "tid")}


def _track_names(view: TraceView, lanes: Lanes, streams: dict[Stream, int]) -> Iterator[dict]:
    trace, activities = view.trace, view.trace.gpu_activities
    launching = activities.thread[view.activities][activities.has_launch[view.activities]]
    threads = np.unique(np.append(trace.range_arrays.thread[view.ranges], launching)).tolist()
    rank = f"rank {view.rank}, " if view.capture_count > 1 else ""
    for process in sorted({process_of(thread) for thread in threads} | {process for process, _, _ in streams}):
        yield _name_event("process_name", Track(view.pid(process), 0), f"{rank}process {process_number(process)}")
    labels = {view.thread_track(thread): f"thread {thread_number(thread)}" for thread in threads}
    for (process, device, stream), number in streams.items():
        label, pid = f"{'CPU' if device < 0 else f'GPU {device}'}, stream {stream}", view.pid(process)
        labels[Track(pid, STREAM_TRACK + number)] = label
        if device >= 0:
            labels[Track(pid, RANGE_TRACK + number)] = f"{label}: ranges"
    for track, label in labels.items():
        yield _name_event("thread_name", track, label)
        for lane, further in enumerate(lanes.further.get(track, ()), start=2):
            yield _name_event("thread_name", further, f"{label} ({lane})")


def _slice(
    view: TraceView, lanes: Lanes, track: Track, name: str, category: str, start_ns: int, end_ns: int,
    arguments: Mapping[str, object] = {},
) -> dict:  # fmt: skip
    """A bar of the timeline; times are integer nanoseconds of the capture."""
    track = lanes.track_for(track, start_ns, end_ns)
    times = {"ts": view.us(start_ns), "dur": (end_ns - start_ns) / 1000}
    return {"ph": "X", "name": name, "cat": category, **track._asdict(), **times, "args": arguments}


def _name_event(kind: str, track: Track, name: str) -> dict:
    return {"ph": "M", "name": kind, **track._asdict(), "args": {"name": name}}
