"""What timelines show: ranges, launches and activities as rows with a start and an end; the ranges of a stream, each
from the first activity in it to the last; and lanes, on which slices nest.
"""

from collections import defaultdict
from itertools import takewhile
from typing import NamedTuple

import numpy as np
import pandas as pd

from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.launches import NO_LAUNCH
from kernel_tables.attribution.ranges import NONE

RANGE, LAUNCH, KERNEL = TRACKS = ("range", "launch", "kernel")
NO_PLACE = -1  # no thread, device or stream


Stream = tuple[int, int, int]  # process, device, stream
FIRST_OF_LANES = 1 << 30  # the first number of further lanes; all other numbers of tracks are below


class StepContents(NamedTuple):
    """What is in one step, as indices."""

    ranges: np.ndarray  # of the step's process, with the step itself
    activities: np.ndarray  # launched in the step


def step_contents(trace: CaptureArrays, step_name: str, step: int) -> StepContents:
    """What is in the `step`, which is the index of a range."""
    ranges = trace.range_arrays
    is_inside = (ranges.start_ns >= ranges.start_ns[step]) & (ranges.end_ns <= ranges.end_ns[step])
    activities = np.flatnonzero(trace.enclosing(step_name) == step)
    return StepContents(np.flatnonzero(is_inside & (ranges.process == ranges.process[step])), activities)


def timeline_rows(trace: CaptureArrays, ranges: np.ndarray, activities: np.ndarray) -> pd.DataFrame:
    """One row per range, per call that launched some of the activities, and per activity. `ranges` and `activities` are
    indices.

    Columns: track (one of TRACKS); thread (global id), device and stream, each -1 if there is none; depth (of a range:
    0 for the shortest paths of these ranges; else 0); name; class ("" if it is not an activity); path_id (index into
    `trace.paths`; the path of a range includes its name); start_ns, end_ns; call (the row of a call, else -1). Without
    a GPU, there are no calls. Raises ImpossibleCapture for an impossible capture.
    """
    trace.require_possible()
    calls = np.empty(0, np.int64) if trace.is_cpu_only else activities
    tables = [range_rows(trace, ranges), call_rows(trace, calls), _activity_rows(trace, activities)]
    return pd.concat(tables, ignore_index=True)


def range_rows(trace: CaptureArrays, rows: np.ndarray) -> pd.DataFrame:
    """The rows of `timeline_rows` for these ranges."""
    ranges, paths = trace.range_arrays, trace.range_paths
    path_id = paths.of_node[rows]
    depth = np.array([len(paths.tuples[path]) for path in path_id.tolist()], np.int64)
    return pd.DataFrame(
        {
            "track": RANGE, "thread": ranges.thread[rows], "device": NO_PLACE, "stream": NO_PLACE,
            "depth": depth - depth.min(initial=depth.max(initial=0)),
            "name": [paths.tuples[path][-1] for path in path_id.tolist()], "class": "", "path_id": path_id,
            "start_ns": ranges.start_ns[rows], "end_ns": ranges.end_ns[rows], "call": NO_LAUNCH,
        }
    )  # fmt: skip


def call_rows(trace: CaptureArrays, rows: np.ndarray) -> pd.DataFrame:
    """The rows of `timeline_rows` for the calls that launched these activities."""
    activities = trace.gpu_activities
    launched = rows[activities.launch_row[rows] != NO_LAUNCH]
    calls, first = np.unique(activities.launch_row[launched], return_index=True)
    rows = launched[first]  # the first activity of each call
    functions = trace.capture.call_functions()
    return pd.DataFrame(
        {
            "track": LAUNCH, "thread": activities.thread[rows], "device": NO_PLACE, "stream": NO_PLACE, "depth": 0,
            "name": [functions.name_by_id.get(number, "launch") for number in functions.name_id[calls].tolist()],
            "class": "",
            "path_id": trace.launch_path[rows].astype(np.int32),
            "start_ns": activities.launch_ns_of(rows), "end_ns": functions.end_ns[calls], "call": calls,
        }
    )  # fmt: skip


def _activity_rows(trace: CaptureArrays, rows: np.ndarray) -> pd.DataFrame:
    activities, classes = trace.gpu_activities, trace.activity_classes
    codes = activities.name[rows].tolist()
    return pd.DataFrame(
        {
            "track": KERNEL, "thread": NO_PLACE, "device": trace.places["device"][rows],
            "stream": trace.places["stream"][rows], "depth": 0, "name": [activities.names[code] for code in codes],
            "class": [classes[code] for code in codes], "path_id": trace.activity_path[rows].astype(np.int32),
            "start_ns": activities.start_ns[rows], "end_ns": activities.end_ns[rows], "call": NO_LAUNCH,
        }
    )  # fmt: skip


class Stretch(NamedTuple):
    """A time in which a stream runs only activities of one range."""

    stream: Stream
    name: int  # code of the name of the range
    start_ns: int
    end_ns: int


def stretches(trace: CaptureArrays, activities: np.ndarray) -> list[Stretch]:
    """The ranges of these activities on their streams, by start; outer ranges precede inner ones with equal times."""
    arrays, name_by_node = trace.gpu_activities, trace.range_arrays.name[trace.attribution.range]
    streams = (arrays.process, trace.places["device"], trace.places["stream"])
    order = activities[np.lexsort((arrays.start_ns[activities], *(column[activities] for column in reversed(streams))))]
    columns = (*streams, trace.attribution.activity_node, arrays.start_ns, arrays.end_ns)
    chains: dict[int, tuple[int, ...]] = {NONE: ()}  # the cache of _chain
    finished: list[Stretch] = []
    open_nodes: list[tuple[int, int]] = []  # on the current stream, outermost first, each with its start
    stream, last_ns = None, 0

    def close(depth: int) -> None:
        """Finishes the open nodes beyond this depth."""
        while len(open_nodes) > depth:
            node, since_ns = open_nodes.pop()
            finished.append(Stretch(stream, int(name_by_node[node]), since_ns, last_ns))

    for *new_stream, innermost, start_ns, end_ns in zip(*(column[order].tolist() for column in columns), strict=True):
        if tuple(new_stream) != stream:
            close(0)
            stream, last_ns = tuple(new_stream), start_ns
        chain = _chain(trace.attribution.parent, innermost, chains)
        is_still_open = (node == open_node for node, (open_node, _) in zip(chain, open_nodes, strict=False))
        close(len(list(takewhile(bool, is_still_open))))
        open_nodes += [(node, start_ns) for node in chain[len(open_nodes) :]]
        last_ns = max(last_ns, end_ns)
    close(0)
    finished.reverse()  # inner ones were closed first
    return sorted(finished, key=lambda stretch: (stretch.start_ns, -stretch.end_ns))


def _chain(parent: np.ndarray, node: int, chains: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    """The nodes around a node, outermost first, and the node itself; `chains` is a cache by node."""
    path = []
    while node not in chains:
        path.append(node)
        node = int(parent[node])
    for inner in reversed(path):
        chains[inner] = (*chains[node], inner)
        node = inner
    return chains[node]


class Track(NamedTuple):
    """A thread, a stream, or the ranges of a stream, as the timeline numbers them."""

    pid: int
    tid: int


class Lanes:
    """Gives each slice a track on which it nests: the track to which it belongs, or a further lane of that track.
    Viewers drop or misplace slices of a track that overlap without nesting."""

    def __init__(self) -> None:
        # By track and lane, the ends of the slices that are still open, outermost first.
        self._open_ends: dict[Track, list[list[int]]] = defaultdict(list)
        self.further: dict[Track, list[Track]] = defaultdict(list)  # the lanes after the first, by track
        self._numbers: dict[int, int] = defaultdict(int)  # how many further lanes there are, by process

    def track_for(self, track: Track, start_ns: int, end_ns: int) -> Track:
        """The track for a slice that belongs to `track`. Slices must come in order of start, then the longest first."""
        lanes = self._open_ends[track]
        for number, ends in enumerate(lanes):
            while ends and ends[-1] <= start_ns:
                ends.pop()
            if not ends or end_ns <= ends[-1]:
                ends.append(end_ns)
                return self.further[track][number - 1] if number else track
        lanes.append([end_ns])
        if len(lanes) == 1:
            return track
        self.further[track].append(Track(track.pid, FIRST_OF_LANES + self._numbers[track.pid]))
        self._numbers[track.pid] += 1
        return self.further[track][-1]
