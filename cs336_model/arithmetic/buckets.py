"""The buckets in which gradients are reduced during the backward pass, and what of that is exposed. Imports no torch.

Sizes follow PyTorch's DistributedDataParallel: gradients fill a bucket in the order in which they become ready, the
last parameter first, until it holds at least its limit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cs336_model.arithmetic.flops import ModelShape
from cs336_model.arithmetic.rings import ALL_REDUCE, Collective, Links

BYTES_PER_MB = 2**20  # bucket_cap_mb counts these


@dataclass(frozen=True)
class Bucket:
    """Bytes of a bucket, and the share of the backward pass after which all its gradients are ready."""

    size_bytes: int
    ready_share: float


def parameter_sizes(shape: ModelShape) -> list[int]:
    """The numbers of each parameter of this project's model, in the order of model.parameters()."""
    d, d_ff = shape.d_model, shape.d_ff
    block = [d, d * d, d * d, d * d, d * d, d, d * d_ff, d * d_ff, d * d_ff]
    return [shape.vocab_size * d, *block * shape.num_layers, d, shape.vocab_size * d]


def buckets_of(shape: ModelShape, bucket_mb: float, number_bytes: int) -> list[Bucket]:
    """The buckets of the model's gradients, in order. The work of a backward pass is taken as proportional to the
    numbers of the parameters that are multiplied, which all are except the embedding."""
    ready = parameter_sizes(shape)[::-1]
    work = [*ready[:-1], 0]
    filled, done, buckets = 0, 0, []
    for index, (numbers, part) in enumerate(zip(ready, work, strict=True)):
        filled, done = filled + numbers * number_bytes, done + part
        if filled >= bucket_mb * BYTES_PER_MB or index == len(ready) - 1:
            buckets.append(Bucket(filled, done / sum(work)))
            filled = 0
    return buckets


def reductions(buckets: Sequence[Bucket], devices: int, links: Links) -> list[float]:
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
    """Seconds by which a second of hidden communication prolongs computation, by least squares from samples of
    (measured cost, exposed, hidden) seconds; at least 0. None without hidden communication."""
    rows = list(samples)
    squares = sum(hidden**2 for _, _, hidden in rows)
    if squares == 0:
        return None
    return max(sum(hidden * (cost - exposed) for cost, exposed, hidden in rows) / squares, 0.0)
