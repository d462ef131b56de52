"""The timeline of captures in Chrome's JSON format, which ui.perfetto.dev and chrome://tracing open.

Tracks: each thread of each process with its ranges and launches, and each stream of each GPU with its activities and
their ranges. An arrow leads from a launch to its kernel. Times in the file are microseconds since the first event, with
decimals.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from kernel_tables.attribution import path_text
from kernel_tables.capture import KINDS, NONE, THREAD_BITS, process_of
from kernel_tables.files import written_whole
from kernel_tables.profile import Profile
from kernel_tables.ranks import numbers_in_run
from kernel_tables.steps import clock_offsets_ns


def write_timeline(profiles: Sequence[Profile], path: Path, under: str | None = None) -> None:
    """Writes the captures to `path`, compressed if it ends in .gz, one below the other, and of each only what is in a
    range `under`: by default in `measure`, if each has it, else all. Clocks of several captures are aligned, see
    steps.clock_offsets_ns."""
    if under is None and all("measure" in profile.capture.ranges.names for profile in profiles):
        under = "measure"
    views, offsets = [_View(profile, under) for profile in profiles], clock_offsets_ns(profiles)
    first_ns = min(view.first_ns + offset for view, offset in zip(views, offsets, strict=True))
    ranks = numbers_in_run(profiles) or range(len(profiles))  # the position, if captures do not name their ranks
    for index, (view, offset, rank) in enumerate(zip(views, offsets, ranks, strict=True)):
        view.offset_ns, view.index, view.rank = offset - first_ns, index, f"rank {rank}, " * (len(views) > 1)
    with (
        written_whole(path) as partial,
        gzip.open(partial, "wt", 3, "utf-8") if path.suffix == ".gz" else partial.open("w", encoding="utf-8") as file,
    ):
        file.write('{"displayTimeUnit": "ns", "writtenBy": "kernel-tables trace", "traceEvents": [')
        for number, event in enumerate(chain.from_iterable(view.events() for view in views)):
            file.write(f"{',' if number else ''}\n{json.dumps(event)}")
        file.write("\n]}\n")


class _View:
    """A capture on the common time axis, and the activities and ranges of it that are written."""

    # The clock's distance from the axis; which of the captures it is; what precedes names of processes.
    offset_ns, index, rank = 0, 0, ""

    def __init__(self, profile: Profile, under: str | None):
        self.profile, self.work, self.calls = profile, profile.capture.activities, profile.capture.calls
        self.launch_row = profile.attribution.launch_row
        self.rows, self.ranges = np.flatnonzero(profile.timed), np.arange(len(profile.capture.ranges))
        if under is not None:
            profile.require_range(under)
            inside = profile.attribution.paths.is_inside(under)
            self.rows = np.flatnonzero(inside[profile.attribution.path] & profile.timed)
            self.ranges = np.flatnonzero(inside[profile.range_path])
        launched = self.launch_row[self.rows]
        self.called = np.unique(launched[launched != NONE])  # the calls that launched something
        starts = self.work.start[self.rows], self.calls.start[self.called], profile.capture.ranges.start[self.ranges]
        self.first_ns = min((int(column.min()) for column in starts if len(column)), default=0)
        columns = (self.work.process, self.work.device, self.work.stream_number)
        self.stream_of_row = list(zip(*(column[self.rows].tolist() for column in columns), strict=True))
        # By process and label of a track: its number, and the ends of slices that are open, outermost first.
        self.tids: dict[tuple[int, str], int] = {}
        self.open_ends: dict[tuple[int, str], list[int]] = defaultdict(list)
        self.track_of_call: dict[int, dict] = {}

    def events(self) -> Iterator[dict]:
        """All events of the capture; names of processes and tracks come last."""
        yield from self._host()
        yield from self._activities()
        yield from self._ranges_of_streams()
        for (process, label), tid in self.tids.items():
            track = {"ph": "M", "pid": self._pid(process), "tid": tid}
            yield track | {"name": "thread_name", "args": {"name": label}}
        for process in sorted({process for process, _ in self.tids}):
            name = f"{self.rank}process {process >> 24 & THREAD_BITS}"
            yield {"ph": "M", "pid": self._pid(process), "tid": 0, "name": "process_name", "args": {"name": name}}

    def _pid(self, process: int) -> int:
        """The number of a process, with that of its capture: two captures may have the same process."""
        return (self.index << 24) + (process >> 24 & THREAD_BITS)

    def _slice(
        self, process: int, label: str, name: str, category: str, start_ns: int, end_ns: int, thread: int | None = None,
        **arguments,
    ) -> dict:  # fmt: skip
        """A slice on the track itself, or on a further lane of it, on which it nests: viewers drop or misplace slices
        that overlap without nesting. Slices must come in order of start, then the longest first."""
        lane, text = 1, label
        while True:
            ends = self.open_ends[process, text]
            while ends and ends[-1] <= start_ns:
                ends.pop()
            if not ends or end_ns <= ends[-1]:
                break
            lane, text = lane + 1, f"{label} ({lane + 1})"
        ends.append(end_ns)
        new = (1 << 24) + len(self.tids)  # above all ids of threads
        tid = self.tids.setdefault((process, text), new if thread is None or lane > 1 else thread)
        times = {"ts": (start_ns + self.offset_ns) / 1000, "dur": (end_ns - start_ns) / 1000}
        about = {"ph": "X", "name": name, "cat": category, "pid": self._pid(process), "tid": tid}
        return about | times | {"args": arguments}

    def _host(self) -> Iterator[dict]:
        """The slices of the ranges, and of the calls that launched something."""
        ranges, calls, called = self.profile.capture.ranges, self.calls, self.called
        self.profile.capture.load_call_ends()
        columns = ranges.start, ranges.end, ranges.thread, ranges.name
        rows = zip(*(column[self.ranges].tolist() for column in columns), strict=True)
        slices = [(start, -end, thread, ranges.names[name], "range", NONE) for start, end, thread, name in rows]
        columns = calls.start, calls.end, calls.thread, calls.name
        rows = zip(called.tolist(), *(column[called].tolist() for column in columns), strict=True)
        for call, start, end, thread, name in rows:
            slices.append((start, -end, int(calls.threads[thread]), calls.names.get(name, "launch"), "launch", call))
        for start, minus_end, thread, name, kind, call in sorted(slices, key=lambda slice_: slice_[:2]):
            process, number = process_of(thread), thread & THREAD_BITS
            event = self._slice(process, f"thread {number}", name, kind, start, -minus_end, number)
            self.track_of_call[call] = {"pid": event["pid"], "tid": event["tid"]}
            yield event

    def _ranges_of_streams(self) -> Iterator[dict]:
        """The slices of the ranges of the GPU's activities, from the first activity in each to the last one. A program
        on a CPU has its ranges only on the tracks of threads."""
        found, ranges = self.profile.attribution, self.profile.capture.ranges
        outer: dict[int, tuple[int, ...]] = {NONE: ()}  # by node: the nodes around it, outermost first, and itself
        for nodes in found.paths.levels_of_nodes:
            for node, parent in zip(nodes.tolist(), found.parent[nodes].tolist(), strict=True):
                outer[node] = (*outer[parent], node)
        start, end = self.work.start[self.rows].tolist(), self.work.end[self.rows].tolist()
        on_gpu = [row for row, stream in enumerate(self.stream_of_row) if stream[1] >= 0]
        innermost = found.activity_node[self.rows].tolist()
        finished, open_nodes, stream, last_ns = [], [], None, 0  # open_nodes: of the stream, with their starts

        def close(depth: int) -> None:
            while len(open_nodes) > depth:
                node, since_ns = open_nodes.pop()
                finished.append((stream, ranges.names[ranges.name[found.range[node]]], since_ns, last_ns))

        for row in sorted(on_gpu, key=lambda row: (self.stream_of_row[row], start[row])):
            if self.stream_of_row[row] != stream:
                close(0)
                stream, last_ns = self.stream_of_row[row], start[row]
            chain, depth = outer[innermost[row]], 0
            while depth < min(len(chain), len(open_nodes)) and chain[depth] == open_nodes[depth][0]:
                depth += 1
            close(depth)
            open_nodes += [(node, start[row]) for node in chain[depth:]]
            last_ns = max(last_ns, end[row])
        close(0)
        finished.reverse()  # inner ones were closed first
        for stream, name, start_ns, end_ns in sorted(finished, key=lambda slice_: (slice_[2], -slice_[3])):
            yield self._slice(stream[0], f"{_label(*stream[1:])}: ranges", name, "range of a stream", start_ns, end_ns)

    def _activities(self) -> Iterator[dict]:
        profile, work = self.profile, self.work
        order = np.lexsort((-work.end[self.rows], work.start[self.rows]))
        columns = (work.start, work.end, work.name, work.kind, profile.attribution.path, self.launch_row)
        rows = zip(order.tolist(), *(column[self.rows[order]].tolist() for column in columns), strict=True)
        texts = {path: path_text(profile.paths[path]) for path in set(profile.attribution.path[self.rows].tolist())}
        for number, (row, start_ns, end_ns, name, kind, path, call) in enumerate(rows):
            process, device, stream = self.stream_of_row[row]
            arguments = {"range": texts[path], "class": profile.activity_classes[name], "device": device}
            label = _label(device, stream)
            event = self._slice(process, label, work.names[name], KINDS[kind], start_ns, end_ns, **arguments)
            yield event
            if call != NONE:
                arrow = {"id": (self.index << 32) + number, "cat": "launch", "name": "launch"}
                launch_ns = int(self.calls.start[call])
                yield arrow | {"ph": "s", "ts": (launch_ns + self.offset_ns) / 1000} | self.track_of_call[call]
                yield arrow | {"ph": "f", "bp": "e"} | {key: event[key] for key in ("ts", "pid", "tid")}


def _label(device: int, stream: int) -> str:
    return f"{'CPU' if device < 0 else f'GPU {device}'}, stream {stream}"
