"""What a collective is and how much it moves, from the names of its kernel and of the ranges around its launch.

A range names the bytes of what is reduced or gathered, on one rank: `all-reduce, bytes = 26214400, bucket = 0`.
"""

from __future__ import annotations

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
IN_PARTS = (ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, "gather", "scatter")  # NCCL counts the part of one rank
FACTORS = {ALL_REDUCE: 2.0, ALL_GATHER: 1.0, REDUCE_SCATTER: 1.0, ALL_TO_ALL: 1.0}


class Told(NamedTuple):
    """What the ranges around a launch tell of a collective; None where they do not."""

    operation: str | None = None
    bytes: int | None = None
    bucket: int | None = None


def told_by(path: Sequence[str]) -> Told:
    """What the innermost range that names a collective or its bytes tells; NCCL's own range may lie inside."""
    for name in reversed(path):
        operation, size, bucket = OF_RANGE.search(name), BYTES.search(name), BUCKET.search(name)
        if size or operation:
            return Told(operation and _spelled(operation[1]), size and int(size[1]), bucket and int(bucket[1]))
    return Told()


def operation_of(kernel: str) -> str | None:
    """The operation that a kernel's name tells: all-reduce; None where it does not (ncclDevKernel_Generic)."""
    if found := OF_GLOO.search(kernel):
        return _spelled(found[1])
    found = OF_NCCL.search(kernel)
    if found is None or found[1] == "Generic":
        return None
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", found[1]).lower()


def bus_factor(operation: str, ranks: int) -> float | None:
    """By what the bandwidth of an algorithm is multiplied to have that of the busiest link, as NCCL's own tests do."""
    if operation in ONE_WAY:
        return 1.0
    return FACTORS.get(operation, 0.0) * (ranks - 1) / ranks or None


def _spelled(operation: str) -> str:
    return operation.replace("_", "-")
