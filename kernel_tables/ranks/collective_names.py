"""The operation and the bytes of a collective, by the names of its kernel and of the ranges around its launch.

A range names the bytes that are reduced or gathered on one rank: `all-reduce, bytes = 26214400, bucket = 0`.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

OF_NCCL = re.compile(r"nccl(?:Dev)?Kernel_([A-Z][a-z]+(?:[A-Z][a-z]+)*)")  # ncclDevKernel_AllReduce_Sum_f32_RING_LL
OF_GLOO = re.compile(r"gloo:(\w+)")
OF_RANGE = re.compile(r"^(all[-_]reduce|all[-_]gather|reduce[-_]scatter|all[-_]to[-_]all|broadcast|reduce)\b")
BYTES, BUCKET = re.compile(r"\bbytes = (\d+)"), re.compile(r"\bbucket = (\d+)")
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all-reduce", "all-gather", "reduce-scatter"
ALL_TO_ALL = "all-to-all"
ONE_WAY = ("broadcast", "reduce")
COUNTED_BY_RANK = (ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, "gather", "scatter")  # by NCCL
FACTORS = {ALL_REDUCE: 2.0, ALL_GATHER: 1.0, REDUCE_SCATTER: 1.0, ALL_TO_ALL: 1.0}


class CollectiveInfo(NamedTuple):
    """A collective as the ranges around its launch name it; None for what they do not name."""

    operation: str | None = None
    bytes: int | None = None
    bucket: int | None = None


def parse_range_path(path: Sequence[str]) -> CollectiveInfo:
    """The collective that the innermost range that names an operation or bytes describes; NCCL's own may be inside."""
    for name in reversed(path):
        operation, size, bucket = OF_RANGE.search(name), BYTES.search(name), BUCKET.search(name)
        if size or operation:
            return CollectiveInfo(
                operation and _spelled(operation[1]), size and int(size[1]), bucket and int(bucket[1])
            )
    return CollectiveInfo()


def operation_of(kernel: str) -> str | None:
    """The operation in a kernel's name: all-reduce; None if it has none (ncclDevKernel_Generic)."""
    if match := OF_GLOO.search(kernel):
        return _spelled(match[1])
    match = OF_NCCL.search(kernel)
    if match is None or match[1] == "Generic":
        return None
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", match[1]).lower()


def bus_factor(operation: str, ranks: int) -> float | None:
    """Bandwidth of the busiest link ÷ bandwidth of the algorithm, as in NCCL's own tests; None if unknown."""
    if operation in ONE_WAY:
        return 1.0
    return FACTORS.get(operation, 0.0) * (ranks - 1) / ranks or None


def _spelled(operation: str) -> str:
    return operation.replace("_", "-")
