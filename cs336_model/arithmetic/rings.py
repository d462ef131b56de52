"""Seconds of collectives on a ring of devices, and how much of them a backward pass does not hide. Imports no torch.

The tensor is cut into one chunk per device. In every one of N − 1 rounds each device sends a chunk to the next, over
all links at the same time; an all-reduce is a reduce-scatter and then an all-gather (P. Patarasuk and X. Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", J. Parallel Distrib. Comput. 69, 2009).
tests/cs336_model/test_rings.py moves the chunks one by one.

Sizes of buckets follow PyTorch's DistributedDataParallel: gradients fill a bucket in the order in which they become
ready, the last parameter first, until it holds at least its limit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cs336_model.arithmetic.flops import ModelShape

ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE = "all-gather", "reduce-scatter", "all-reduce"
TIMES_AROUND = {ALL_GATHER: 1, REDUCE_SCATTER: 1, ALL_REDUCE: 2}


@dataclass(frozen=True)
class Collective:
    """One collective: its operation, the bytes of the entire tensor, and the number of devices."""

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

    def total_seconds(self, collectives: Iterable[Collective]) -> float:
        """The time of several collectives, one after another."""
        return sum(map(self.seconds, collectives))


def fitted_links(devices: int, sizes_bytes: Iterable[float], seconds: Iterable[float]) -> Links:
    """The latency and bandwidth that fit measured `seconds` of all-reduces of two or more sizes best, by least squares
    of the relative errors. Raises ValueError if all sizes are the same, or no positive bandwidth fits."""
    # An all-reduce that sends m bytes over each link in t seconds gives the equation
    # latency_s · a + s_per_byte · b = 1, with a = 1/t and b = m/t. Least squares need sums of a², ab, b², a and b.
    sent_share = TIMES_AROUND[ALL_REDUCE] * (devices - 1) / devices
    equations = [(1 / time, sent_share * size / time) for size, time in zip(sizes_bytes, seconds, strict=True)]
    sum_a, sum_b = sum(a for a, _ in equations), sum(b for _, b in equations)
    sum_aa, sum_bb = sum(a * a for a, _ in equations), sum(b * b for _, b in equations)
    sum_ab = sum(a * b for a, b in equations)
    determinant = sum_aa * sum_bb - sum_ab * sum_ab
    if determinant <= 1e-12 * sum_aa * sum_bb:
        raise ValueError(
            f"{len(equations)} all-reduces of the same size give no latency and bandwidth; measure another size"
        )
    latency_s = (sum_a * sum_bb - sum_b * sum_ab) / determinant
    s_per_byte = (sum_aa * sum_b - sum_ab * sum_a) / determinant
    if latency_s < 0:  # then the best fit is the one without latency
        latency_s, s_per_byte = 0.0, sum_b / sum_bb
    if s_per_byte <= 0:
        raise ValueError("the times of all-reduce do not grow with its size")
    return Links(1 / s_per_byte, latency_s)


BYTES_PER_MB = 2**20  # the unit of PyTorch's bucket_cap_mb


@dataclass(frozen=True)
class Bucket:
    """Bytes of a bucket, and the share of the backward pass after which all its gradients are ready."""

    size_bytes: int
    ready_share: float


def parameter_sizes(shape: ModelShape) -> list[int]:
    """How many numbers each parameter of this project's model has, in the order of model.parameters()."""
    d, d_ff = shape.d_model, shape.d_ff
    # norm; queries, keys, values and output; norm; the three matrices of SwiGLU
    block = [d, d * d, d * d, d * d, d * d, d, d * d_ff, d * d_ff, d * d_ff]
    return [shape.vocab_size * d, *block * shape.num_layers, d, shape.vocab_size * d]


def buckets_of(shape: ModelShape, bucket_mb: float, number_bytes: int) -> list[Bucket]:
    """The buckets of the model's gradients, in the order in which they become ready. The time of the backward pass is
    divided between parameters in proportion to their sizes; only the embedding's gradient is assumed to take none."""
    ready = parameter_sizes(shape)[::-1]  # sizes in the order in which gradients become ready
    work = [*ready[:-1], 0]  # the embedding is last
    bucket_bytes, work_done, buckets = 0, 0, []
    for index, (numbers, parameter_work) in enumerate(zip(ready, work, strict=True)):
        bucket_bytes += numbers * number_bytes
        work_done += parameter_work
        if bucket_bytes >= bucket_mb * BYTES_PER_MB or index == len(ready) - 1:
            buckets.append(Bucket(bucket_bytes, work_done / sum(work)))
            bucket_bytes = 0
    return buckets


def all_reduce_seconds(buckets: Sequence[Bucket], devices: int, links: Links) -> list[float]:
    """Seconds of the all-reduce of each bucket."""
    return [links.seconds(Collective(ALL_REDUCE, bucket.size_bytes, devices)) for bucket in buckets]


def exposed_s(buckets: Sequence[Bucket], seconds: Sequence[float], backward_s: float) -> float:
    """Seconds from the end of a backward pass of `backward_s` to the end of the last all-reduce. A bucket's all-reduce
    starts when its gradients are ready and the one before has ended."""
    end = 0.0
    for bucket, duration in zip(buckets, seconds, strict=True):
        end = max(end, bucket.ready_share * backward_s) + duration
    return max(end - backward_s, 0.0)


def slowdown(samples: Iterable[tuple[float, float, float]]) -> float | None:
    """Seconds by which a second of hidden (overlapped) communication prolongs computation; at least 0. A least-squares
    fit to samples of (measured cost, exposed, hidden) seconds. None without hidden communication."""
    rows = list(samples)
    squares = sum(hidden**2 for _, _, hidden in rows)
    if squares == 0:
        return None
    return max(sum(hidden * (cost - exposed) for cost, exposed, hidden in rows) / squares, 0.0)
