"""Ranges on the time axis of a stream: each from the first thing that it ran there to the last."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.ranges import NONE

Stream = tuple[int, int, int]  # process, device, stream


class Stretch(NamedTuple):
    """A range as long as a stream runs what it launched, without a break for anything else."""

    stream: Stream
    name: int
    start_ns: int
    end_ns: int


def stretches(trace: CaptureArrays, activities: np.ndarray) -> list[Stretch]:
    """The ranges of these activities on their streams; of those with equal times the outer one comes first."""
    rows = trace.gpu_activities
    node = trace.attribution.activity_node
    places = (rows.process, trace.places["device"], trace.places["stream"])
    order = activities[np.lexsort((rows.start_ns[activities], *(place[activities] for place in reversed(places))))]
    columns = (column[order].tolist() for column in (*places, node, rows.start_ns, rows.end_ns))
    made: list[Stretch] = []
    chains = _Chains(trace)
    stream, opened, last_ns = None, _Open(trace), 0
    for process, device, number, innermost, start_ns, end_ns in zip(*columns, strict=True):
        if (process, device, number) != stream:
            made += opened.close(0, last_ns)
            stream = opened.stream = process, device, number
            last_ns = start_ns
        chain = chains.of(innermost)
        common = _common(opened.chain, chain)
        made += opened.close(common, last_ns)
        opened.open(chain, start_ns)
        last_ns = max(last_ns, end_ns)
    made += opened.close(0, last_ns)
    return made[::-1]  # inner ones were closed first


class _Chains:
    """The nodes of chains of ranges, outermost first."""

    def __init__(self, trace: CaptureArrays) -> None:
        self._parent = trace.attribution.parent
        self._known: dict[int, tuple[int, ...]] = {NONE: ()}

    def of(self, node: int) -> tuple[int, ...]:
        way = []
        while node not in self._known:
            way.append(node)
            node = int(self._parent[node])
        for inner in reversed(way):
            self._known[inner] = (*self._known[node], inner)
            node = inner
        return self._known[node]


class _Open:
    """The ranges that are open on a stream."""

    def __init__(self, trace: CaptureArrays) -> None:
        self._name_of = trace.range_arrays.name[trace.attribution.range]
        self.stream: Stream = (0, 0, 0)
        self.chain: tuple[int, ...] = ()
        self._since_ns: list[int] = []

    def open(self, chain: tuple[int, ...], start_ns: int) -> None:
        self._since_ns += [start_ns] * (len(chain) - len(self._since_ns))
        self.chain = chain

    def close(self, kept: int, end_ns: int) -> Iterator[Stretch]:
        while len(self._since_ns) > kept:
            name = int(self._name_of[self.chain[len(self._since_ns) - 1]])
            yield Stretch(self.stream, name, self._since_ns.pop(), end_ns)
        self.chain = self.chain[:kept]


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """How many nodes two chains begin with together."""
    pairs = zip(first, second, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
