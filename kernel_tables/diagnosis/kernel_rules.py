"""Rules on the kernels themselves and, from counters, on how launches fill the GPU. Each returns a RuleHit, or None."""

import numpy as np

from kernel_tables.diagnosis.context import BACKWARD, MANY_OPTIMIZER_KERNELS, DiagnosisContext, RuleHit
from kernel_tables.intervals import intersection

SMALL_NS, SMALL_SHARE, MANY_LAUNCHES = 10_000, 0.15, 100  # nsys-ai's lines: shorter than 10 us, 100 launches and more
KERNEL_SHARE = 0.05
SHORTEST_CHAIN = 3
OVERLAP_SHARE = 0.30  # nsys-ai's line for communication
# A fused kernel saves the passes over memory; its backward pass has 2.5 times the arithmetic of its forward pass
# (FlashAttention: five matrix multiplies for two).
BACKWARD_OF_ATTENTION = 2.5
HALF = 0.5  # of the warps that a multiprocessor holds
EMPTY_TAIL = 0.2  # of the places for blocks in all waves
# Matrix multiplies keep their tiles in registers and hide latency within a warp: they are fast at an eighth.
FAST_AT_LOW_OCCUPANCY = ("gemm", "attention")


def small_kernels(context: DiagnosisContext) -> RuleHit | None:
    """Many tiny kernels cost their time and the gaps around them: without them, neither would be there."""
    scope = context.scope
    small = scope.is_kernel & scope.inside & (context.claimed_ns == 0) & (scope.activities.duration_ns < SMALL_NS)
    next_to_small = small.copy()
    for device in scope.devices:
        next_to_small[device.rows[1:]] |= small[device.rows[:-1]]
    gaps_ns = np.where(next_to_small, context.idle_before_launches, 0)
    total_ns = scope.busy_ns(small) + int(gaps_ns.sum())
    if small.sum() < MANY_LAUNCHES * scope.count or scope.share(total_ns) < SMALL_SHARE:
        return None
    evidence = {
        "kernels_per_step": round(int(small.sum()) / scope.count, 1),
        "mean_us": round(float(scope.activities.duration_ns[small].mean()) / 1e3, 3),
        "gaps_between_ms": scope.per_step_ms(total_ns - scope.busy_ns(small)),
    }
    message = (
        f"{evidence['kernels_per_step']:,.0f} kernels of a step are shorter than {SMALL_NS // 1000} µs; with the gaps"
        f" around them they take {scope.in_words(total_ns)}"
    )
    return RuleHit(total_ns, message, evidence, np.where(small, context.time_by_activity, 0) + gaps_ns)


def unfused_elementwise(context: DiagnosisContext) -> RuleHit | None:
    scope = context.scope
    mask = scope.of_class("elementwise") & scope.inside & (context.claimed_ns == 0)
    chains, members, gain_ns, total_ns = _chains(context, mask)
    if not chains or scope.share(gain_ns) < KERNEL_SHARE:
        return None
    evidence = {
        "chains_per_step": round(chains / scope.count, 1),
        "kernels_per_step": round(int(members.sum()) / scope.count, 1),
        "chains_ms": scope.per_step_ms(total_ns),
    }
    message = f"chains of {SHORTEST_CHAIN} and more elementwise {scope.noun} take {scope.in_words(total_ns)}"
    return RuleHit(gain_ns, message, evidence, np.where(members, context.time_by_activity, 0))


def _chains(context: DiagnosisContext, mask: np.ndarray) -> tuple[int, np.ndarray, int, int]:
    """(number of chains of kernels in `mask`, mask of their activities, their time without the shortest kernel of each
    chain, their time): kernels in a row on a stream, launched in the same ranges."""
    scope, members = context.scope, np.zeros(len(mask), bool)
    chains = gain_ns = total_ns = 0
    devices = [device for device in scope.devices if mask[device.rows].any()]
    for rows in (rows for device in devices for rows in scope.streams(device)):
        path, wanted = scope.trace.activity_path[rows], mask[rows]
        breaks = np.append(True, (path[1:] != path[:-1]) | ~wanted[1:] | ~wanted[:-1])
        first = np.flatnonzero(breaks)
        length = np.diff(np.append(first, len(rows)))
        time = context.time_by_activity[rows]
        is_chain = (length >= SHORTEST_CHAIN) & wanted[first]
        sums, least = np.add.reduceat(time, first)[is_chain], np.minimum.reduceat(time, first)[is_chain]
        chains += int(is_chain.sum())
        gain_ns += int((sums - least).sum())
        total_ns += int(sums.sum())
        members[rows[np.repeat(is_chain, length)]] = True
    return chains, members, gain_ns, total_ns


def casts(context: DiagnosisContext) -> RuleHit | None:
    return taking(context, context.casts, "kernels that only convert between number formats take")


def no_tensor_cores(context: DiagnosisContext) -> RuleHit | None:
    return taking(context, context.fp32_matmuls, "matrix multiplies in fp32, without tensor cores, take")


def taking(context: DiagnosisContext, mask: np.ndarray, subject: str, least: float = KERNEL_SHARE) -> RuleHit | None:
    """The hit for kernels of `mask` that take at least this share of the time."""
    scope, total_ns = context.scope, context.scope.busy_ns(mask)
    if not total_ns or scope.share(total_ns) < least:
        return None
    evidence = {"kernels_per_step": round(int(mask.sum()) / scope.count, 1), "ms": scope.per_step_ms(total_ns)}
    return RuleHit(
        total_ns, f"{subject} {scope.in_words(total_ns)}", evidence, np.where(mask, context.time_by_activity, 0)
    )


def unfused_attention(context: DiagnosisContext) -> RuleHit | None:
    """The chains of kernels that a fused kernel replaces, with their products. If no chain of the backward pass is
    known, its time is bounded by the forward pass."""
    scope, attention = context.scope, context.attention
    forward_ns, seen_ns = scope.busy_ns(attention.forward), scope.busy_ns(attention.backward)
    in_backward = scope.within(BACKWARD.search) & scope.inside & scope.is_kernel
    backward_ns = seen_ns or min(scope.busy_ns(in_backward), round(BACKWARD_OF_ATTENTION * forward_ns))
    total_ns = scope.busy_ns(attention.chains) + (0 if seen_ns else backward_ns)
    between_ns = scope.busy_ns(attention.chains & ~attention.is_product)
    known = (forward_ns + seen_ns) / max(total_ns, 1)  # the share of attention whose kernels are known
    if not between_ns or scope.share(between_ns) < KERNEL_SHARE * known:
        return None
    evidence = {
        "kernels_per_step": round(int(attention.chains.sum()) / scope.count, 1),
        "forward_ms": scope.per_step_ms(forward_ns),
        "backward_ms": scope.per_step_ms(backward_ns),
        "backward_is_a_bound": not seen_ns and backward_ns > 0,
        "without_matmuls_ms": scope.per_step_ms(between_ns),
    }
    message = (
        f"attention runs as separate {scope.noun} (product, softmax, product), which take {scope.in_words(total_ns)}"
    )
    if evidence["backward_is_a_bound"]:
        message += f", counting at most {BACKWARD_OF_ATTENTION} times the forward pass for the backward pass"
    return RuleHit(total_ns, message, evidence, np.where(attention.chains, context.time_by_activity, 0))


def unfused_optimizer(context: DiagnosisContext) -> RuleHit | None:
    mask, scope = context.optimizer, context.scope
    weight = context.with_own_gaps(mask)
    total_ns = scope.busy_ns(mask) + int(np.where(mask, weight - context.time_by_activity, 0).sum())
    if not total_ns or scope.share(total_ns) < KERNEL_SHARE:
        return None
    evidence = {
        "kernels_per_step": round(int(mask.sum()) / scope.count, 1),
        "many_from": MANY_OPTIMIZER_KERNELS,
        "running_ms": scope.per_step_ms(scope.busy_ns(mask)),
        "mean_us": round(float(scope.activities.duration_ns[mask].mean()) / 1e3, 3),
    }
    waiting = "the time before each" if scope.trace.is_cpu_only else "the GPU's waiting for them"
    message = f"the optimizer's many {scope.noun}, and {waiting}, take"
    return RuleHit(total_ns, f"{message} {scope.in_words(total_ns)}", evidence, weight)


def exposed_communication(context: DiagnosisContext) -> RuleHit | None:
    scope = context.scope
    communication = scope.of_class("communication") & scope.inside
    others = scope.is_kernel & ~communication
    total_ns, exposed_ns = scope.busy_ns(communication), scope.parts_ns["exposed communication"]
    hidden_ns = sum(intersection(d.during(communication), d.during(others)).total_ns for d in scope.devices)
    overlap = hidden_ns / max(total_ns, 1)
    if overlap >= OVERLAP_SHARE or scope.share(exposed_ns) < KERNEL_SHARE:
        return None
    evidence = {"communication_ms": scope.per_step_ms(total_ns), "overlap": round(overlap, 4)}
    message = f"communication that is not overlapped by computation takes {scope.in_words(exposed_ns)}"
    return RuleHit(exposed_ns, message, evidence, np.where(communication, context.time_by_activity, 0))


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
