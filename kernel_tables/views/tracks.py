"""Tracks of a timeline: lanes whose slices nest, and the ranges of a stream, from the first activity in them to the
last."""

from collections import defaultdict
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.ranges import NONE

Stream = tuple[int, int, int]  # process, device, stream


class Stretch(NamedTuple):
    """A time in which a stream runs only activities of one range."""

    stream: Stream
    name: int
    start_ns: int
    end_ns: int


def stretches(trace: CaptureArrays, activities: np.ndarray) -> list[Stretch]:
    """The ranges of these activities on their streams, by start; outer ranges precede inner ones with equal times."""
    rows, name_of = trace.gpu_activities, trace.range_arrays.name[trace.attribution.range]
    keys = (rows.process, trace.places["device"], trace.places["stream"])
    order = activities[np.lexsort((rows.start_ns[activities], *(column[activities] for column in reversed(keys))))]
    columns = (*keys, trace.attribution.activity_node, rows.start_ns, rows.end_ns)
    chains: dict[int, tuple[int, ...]] = {NONE: ()}
    finished: list[Stretch] = []
    opened: list[tuple[int, int]] = []  # the nodes that are open on a stream, and since when
    stream, last_ns = None, 0

    def close(depth: int) -> None:
        while len(opened) > depth:
            node, since_ns = opened.pop()
            finished.append(Stretch(stream, int(name_of[node]), since_ns, last_ns))

    for *place, innermost, start_ns, end_ns in zip(*(column[order].tolist() for column in columns), strict=True):
        if tuple(place) != stream:
            close(0)
            stream, last_ns = tuple(place), start_ns
        chain = _chain(trace.attribution.parent, innermost, chains)
        pairs = zip(chain, opened, strict=False)
        close(len(list(takewhile(lambda pair: pair[0] == pair[1][0], pairs))))
        opened += [(node, start_ns) for node in chain[len(opened) :]]
        last_ns = max(last_ns, end_ns)
    close(0)
    finished.reverse()  # inner ones were closed first
    return sorted(finished, key=lambda stretch: (stretch.start_ns, -stretch.end_ns))


def _chain(parent: np.ndarray, node: int, chains: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    """The nodes around a node, outermost first, and itself; `chains` keeps those that are known."""
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


FIRST_OF_LANES = 1 << 30  # numbers of tracks are below this


class Lanes:
    """Gives each slice a track on which it nests: its track, or a further lane of it. Viewers drop or misplace slices
    of a track that only overlap."""

    def __init__(self) -> None:
        self._open: dict[Track, list[list[int]]] = defaultdict(list)  # by lane, the ends of open slices
        self.further: dict[Track, list[Track]] = defaultdict(list)  # the lanes after the first, by track
        self._numbers: dict[int, int] = defaultdict(int)  # of further lanes, by process

    def place(self, track: Track, start_ns: int, end_ns: int) -> Track:
        """The track of a slice; those of one track are given by start, the longest first."""
        lanes = self._open[track]
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
