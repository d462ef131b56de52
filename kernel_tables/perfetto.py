"""The timeline of captures in Chrome's JSON format, which ui.perfetto.dev and chrome://tracing open.

Tracks: each thread of each process with its ranges and launches, and each stream of each GPU with its activities. An
arrow leads from a launch to its kernel. Times in the file are microseconds since the first event, with decimals.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution import path_text
from kernel_tables.capture import KINDS, NONE, THREAD_BITS, process_of
from kernel_tables.files import written_whole
from kernel_tables.profile import Profile
from kernel_tables.ranks import numbers_in_run
from kernel_tables.steps import clock_offsets_ns
from kernel_tables.tables import is_inside


class Slice(NamedTuple):
    """A range, a call that launched something, or an activity. In order of the first two, outer slices come first."""

    start_ns: int
    minus_end_ns: int
    process: int
    track: str
    category: str
    name: str
    call: int  # the row of the call that this is or that launched it, else NONE
    arguments: dict


def write_timeline(profiles: Sequence[Profile], path: Path, under: str | None = None) -> None:
    """Writes the captures to `path`, compressed if it ends in .gz, one below the other, and of each only what is in a
    range `under`: by default in `measure`, if each has it, else all. Clocks of several captures are aligned, see
    steps.clock_offsets_ns."""
    if under is None and all("measure" in profile.capture.ranges.names for profile in profiles):
        under = "measure"
    captures = [sorted(_slices(profile, under), key=lambda one: one[:2]) for profile in profiles]
    offsets = clock_offsets_ns(profiles)
    starts = [slices[0].start_ns + offset for slices, offset in zip(captures, offsets, strict=True) if slices]
    ranks = numbers_in_run(profiles) or range(len(profiles))  # the position, if captures do not name their ranks
    with (
        written_whole(path) as partial,
        gzip.open(partial, "wt", 3, "utf-8") if path.suffix == ".gz" else partial.open("w", encoding="utf-8") as file,
    ):
        file.write('{"displayTimeUnit": "ns", "writtenBy": "kernel-tables trace", "traceEvents": [')
        separator = "\n"
        for index, (slices, offset, rank) in enumerate(zip(captures, offsets, ranks, strict=True)):
            label = f"rank {rank}, " if len(profiles) > 1 else ""
            for event in _events(slices, offset - min(starts, default=0), index, label):
                file.write(separator + json.dumps(event))
                separator = ",\n"
        file.write("\n]}\n")


def _slices(profile: Profile, under: str | None) -> Iterator[Slice]:
    work, calls, ranges = profile.capture.activities, profile.capture.calls, profile.capture.ranges
    profile.capture.load_call_ends()
    inside = is_inside(profile, under)
    rows = np.flatnonzero(inside[profile.range_path])
    columns = (ranges.start, ranges.end, ranges.thread, ranges.name)
    for start, end, thread, name in zip(*(column[rows].tolist() for column in columns), strict=True):
        yield Slice(start, -end, *_thread(thread), "range", ranges.names[name], NONE, {})
    rows, path, launch_row = np.flatnonzero(profile.timed), profile.attribution.path, profile.attribution.launch_row
    rows = rows[inside[path[rows]]]
    called = np.setdiff1d(launch_row[rows], [NONE])
    columns = (called, calls.start[called], calls.end[called], calls.threads[calls.thread[called]], calls.name[called])
    for call, start, end, thread, name in zip(*(column.tolist() for column in columns), strict=True):
        yield Slice(start, -end, *_thread(thread), "launch", calls.names.get(name, "launch"), call, {})
    texts = [path_text(names) for names in profile.paths]
    columns = (work.start, work.end, work.process, work.device, work.stream_number, work.kind, work.name, launch_row)
    for start, end, process, device, stream, kind, name, call, around in zip(
        *(column[rows].tolist() for column in (*columns, path)), strict=True
    ):
        track = f"{'CPU' if device < 0 else f'GPU {device}'}, stream {stream}"
        arguments = {"range": texts[around], "class": profile.activity_classes[name], "device": device}
        yield Slice(start, -end, process, track, KINDS[kind], work.names[name], call, arguments)


def _thread(thread: int) -> tuple[int, str]:
    """The process of a thread, and the label of its track."""
    return process_of(thread), f"thread {thread & THREAD_BITS}"


def _events(slices: Sequence[Slice], offset_ns: int, index: int, rank: str) -> Iterator[dict]:
    """The events of these slices, with arrows from launches; names of processes and tracks come last."""
    tids: dict[tuple[int, str], int] = {}  # numbers of tracks
    open_ends: dict[tuple[int, str], list[int]] = defaultdict(list)  # of slices of each track, outermost first
    launches: dict[int, dict] = {}
    arrows = []
    for one in slices:
        # On the track itself, or on a further one on which it nests: viewers drop or misplace others.
        lane, track = 1, (one.process, one.track)
        while True:
            ends = open_ends[track]
            while ends and ends[-1] <= one.start_ns:
                ends.pop()
            if not ends or -one.minus_end_ns <= ends[-1]:
                break
            lane += 1
            track = (one.process, f"{one.track} ({lane})")
        ends.append(-one.minus_end_ns)
        place = {"pid": _pid(one.process, index), "tid": tids.setdefault(track, len(tids) + 1)}
        place["ts"] = (one.start_ns + offset_ns) / 1000
        length = {"dur": (-one.minus_end_ns - one.start_ns) / 1000}
        yield {"ph": "X", "name": one.name, "cat": one.category, "args": one.arguments} | place | length
        if one.category == "launch":
            launches[one.call] = place
        elif one.call != NONE:
            arrows.append((one.call, place))
    for number, (call, place) in enumerate(arrows):
        arrow = {"id": (index << 32) + number, "cat": "launch", "name": "launch"}
        yield arrow | {"ph": "s"} | launches[call]
        yield arrow | {"ph": "f", "bp": "e"} | place
    for (process, label), tid in tids.items():
        yield {"ph": "M", "pid": _pid(process, index), "tid": tid, "name": "thread_name", "args": {"name": label}}
    for process in sorted({process for process, _ in tids}):
        name = f"{rank}process {process >> 24 & THREAD_BITS}"
        yield {"ph": "M", "pid": _pid(process, index), "tid": 0, "name": "process_name", "args": {"name": name}}


def _pid(process: int, index: int) -> int:
    """The number of a process, with that of its capture: two captures may have the same process."""
    return (index << 24) + (process >> 24 & THREAD_BITS)
