"""Rules on how launches fill the GPU, from counters. Each returns a RuleHit, or None."""

from __future__ import annotations

import numpy as np

from kernel_tables.diagnosis.context import DiagnosisContext, RuleHit
from kernel_tables.diagnosis.kernel_rules import KERNEL_SHARE

HALF = 0.5  # of the warps that a multiprocessor holds
EMPTY_TAIL = 0.2  # of the places for blocks in all waves
# Matrix multiplies keep their tiles in registers and hide latency within a warp: they are fast at an eighth.
FAST_AT_LOW_OCCUPANCY = ("gemm", "attention")


def low_occupancy(context: DiagnosisContext) -> RuleHit | None:
    """Kernels of at least one wave that leave more than half of the GPU's warps empty."""
    filling, scope = context.filling, context.scope
    mask = scope.inside & scope.is_kernel & ~scope.of_class(*FAST_AT_LOW_OCCUPANCY)
    mask &= (filling.occupancy < HALF) & (filling.waves >= 1)
    message = "kernels that leave more than half of the warps empty take"
    return _rule_hit(context, mask, 1 - filling.occupancy, message, "mean_empty_warps")


def wave_tail(context: DiagnosisContext) -> RuleHit | None:
    """Kernels of more than one wave whose last wave leaves many places empty."""
    filling, scope = context.filling, context.scope
    mask = scope.inside & scope.is_kernel & (filling.tail >= EMPTY_TAIL) & (filling.waves > 1)
    return _rule_hit(context, mask, filling.tail, "kernels whose last wave is nearly empty take", "mean_tail")


def _rule_hit(
    context: DiagnosisContext, mask: np.ndarray, empty: np.ndarray, message: str, name: str
) -> RuleHit | None:
    """The hit for the activities in `mask`, which do not use a share `empty` of the GPU."""
    scope = context.scope
    total_ns = scope.busy_ns(mask)
    if not total_ns or scope.share(total_ns) < KERNEL_SHARE:
        return None
    weight = np.where(mask, context.time_by_activity * np.nan_to_num(empty), 0).astype(np.int64)
    evidence = {
        "kernels_per_step": round(int(mask.sum()) / scope.count, 1),
        "running_ms": scope.per_step_ms(total_ns),
        name: round(float(weight.sum() / context.time_by_activity[mask].sum()), 4),
    }
    return RuleHit(min(int(weight.sum()), total_ns), f"{message} {scope.in_words(total_ns)}", evidence, weight)
