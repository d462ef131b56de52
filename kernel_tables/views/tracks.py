"""Tracks of a timeline: lanes whose slices nest, and the ranges of a stream, from the first activity in them to the
last."""

from collections import defaultdict
from collections.abc import Iterator
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
