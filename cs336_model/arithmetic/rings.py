"""Seconds of collectives on a ring of devices. Imports no torch.

The tensor is cut into one chunk per device. In every one of N − 1 rounds each device sends a chunk to the next, over
all links at the same time; an all-reduce is a reduce-scatter and then an all-gather (P. Patarasuk and X. Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", J. Parallel Distrib. Comput. 69, 2009).
tests/cs336_model/test_rings.py moves the chunks one by one.
"""

from collections.abc import Iterable
from dataclasses import dataclass

ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE = "all-gather", "reduce-scatter", "all-reduce"
TIMES_AROUND = {ALL_GATHER: 1, REDUCE_SCATTER: 1, ALL_REDUCE: 2}


@dataclass(frozen=True)
class Collective:
    """One collective of some of the devices: its operation, the bytes of the entire tensor, the devices."""

    operation: str
    size_bytes: float
    devices: int


@dataclass(frozen=True)
class Links:
    """The links of a ring: bytes per second of each, and the seconds of a collective without bytes."""

    bytes_per_s: float
    latency_s: float = 0.0

    def seconds(self, collective: Collective) -> float:
        """The time of one collective; 0 on one device."""
        n = collective.devices
        if n == 1:
            return 0.0
        rounds = TIMES_AROUND[collective.operation] * (n - 1)
        return self.latency_s + rounds * collective.size_bytes / n / self.bytes_per_s

    def seconds_of(self, collectives: Iterable[Collective]) -> float:
        """The time of several, one after another."""
        return sum(map(self.seconds, collectives))


def links_of(devices: int, sizes_bytes: Iterable[float], seconds: Iterable[float]) -> Links:
    """The links whose times come nearest, in relative squares, to the measured `seconds` of all-reduces of these sizes
    (two or more). Raises ValueError if no positive bandwidth does."""
    measured = list(zip(sizes_bytes, seconds, strict=True))
    pairs = [(1 / time, TIMES_AROUND[ALL_REDUCE] * (devices - 1) / devices * size / time) for size, time in measured]
    aa, ab, bb = (sum(row[i] * row[j] for row in pairs) for i, j in ((0, 0), (0, 1), (1, 1)))
    a1, b1 = (sum(row[i] for row in pairs) for i in (0, 1))
    determinant = aa * bb - ab * ab
    if determinant <= 1e-12 * aa * bb:
        raise ValueError(f"{len(pairs)} all-reduces of the same size give no latency and bandwidth")
    latency, per_byte = (a1 * bb - b1 * ab) / determinant, (aa * b1 - ab * a1) / determinant
    if latency < 0:
        latency, per_byte = 0.0, b1 / bb
    if per_byte <= 0:
        raise ValueError("the times of all-reduce do not grow with its size")
    return Links(1 / per_byte, latency)
