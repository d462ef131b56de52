"""Rules on the kernels themselves and, from counters, on how launches fill the GPU. Each returns a RuleHit, or None."""

import numpy as np

from kernel_tables.diagnosis.context import BACKWARD, MANY_OPTIMIZER_KERNELS, DiagnosisContext, RuleHit
from kernel_tables.diagnosis.devices import COMMUNICATION
from kernel_tables.diagnosis.idle import GPU, LAUNCHING

SMALL_NS, SMALL_SHARE, MANY_LAUNCHES = 10_000, 0.15, 100  # nsys-ai's thresholds for small kernels
KERNEL_SHARE = 0.05
MIN_CHAIN = 3  # kernels
OVERLAP_SHARE = 0.30  # nsys-ai's threshold for communication
# How much more a backward pass of attention takes than its forward pass: it has 2.5 times the arithmetic
# (FlashAttention: five matrix multiplies instead of two).
BACKWARD_OF_ATTENTION = 2.5
LOW_OCCUPANCY = 0.5  # of the warps that a multiprocessor holds
EMPTY_TAIL = 0.2  # of the places for blocks in all waves
# Matrix multiplies, alone or in fused attention, keep their tiles in registers and hide latency within a warp: they are
# fast at an occupancy of an eighth.
FAST_AT_LOW_OCCUPANCY = ("gemm", "attention")


def small_kernels(context: DiagnosisContext) -> RuleHit | None:
    """Many tiny kernels cost their time and the gaps around them: without them, neither would be there."""
    scope = context.scope
    is_small = scope.is_kernel & scope.is_in_span & (context.claimed_ns == 0)
    is_small &= scope.activities.duration_ns < SMALL_NS
    ends_gap = is_small.copy()  # whether the gap before it lies next to a small kernel
    for device in scope.devices:
        ends_gap[device.rows[1:]] |= is_small[device.rows[:-1]]
    gaps_ns = np.where(ends_gap, context.unblocked_idle_ns, 0)
    total_ns = scope.busy_ns(is_small) + int(gaps_ns.sum())
    if is_small.sum() < MANY_LAUNCHES * scope.step_count or scope.share(total_ns) < SMALL_SHARE:
        return None
    evidence = {
        "kernels_per_step": scope.per_step(is_small),
        "mean_us": round(float(scope.activities.duration_ns[is_small].mean()) / 1e3, 3),
        "gaps_between_ms": scope.per_step_ms(total_ns - scope.busy_ns(is_small)),
    }
    message = (
        f"{evidence['kernels_per_step']:,.0f} kernels of a step are shorter than {SMALL_NS // 1000} µs; with the gaps"
        f" around them they take {scope.in_words(total_ns)}"
    )
    return RuleHit(total_ns, message, evidence, np.where(is_small, context.time_by_activity, 0) + gaps_ns)


def unfused_elementwise(context: DiagnosisContext) -> RuleHit | None:
    """Chains of elementwise kernels in a row on a stream, launched in the same ranges. A fix saves all kernels of a
    chain but the shortest."""
    scope = context.scope
    mask = scope.is_of_class("elementwise") & scope.is_in_span & (context.claimed_ns == 0)
    is_member, chains, gain_ns, total_ns = np.zeros(len(mask), bool), 0, 0, 0
    devices = [device for device in scope.devices if mask[device.rows].any()]
    streams = [rows for device in devices for rows in scope.streams(device)]
    for rows in streams:
        path, is_elementwise = scope.trace.activity_path[rows], mask[rows]
        begins = np.append(True, (path[1:] != path[:-1]) | ~is_elementwise[1:] | ~is_elementwise[:-1])
        first = np.flatnonzero(begins)  # of each stretch: a chain, or a single other kernel
        length = np.diff(np.append(first, len(rows)))
        is_chain = (length >= MIN_CHAIN) & is_elementwise[first]
        time_ns = context.time_by_activity[rows]
        chain_ns, shortest_ns = (ufunc.reduceat(time_ns, first)[is_chain] for ufunc in (np.add, np.minimum))
        chains += int(is_chain.sum())
        gain_ns += int((chain_ns - shortest_ns).sum())
        total_ns += int(chain_ns.sum())
        is_member[rows[np.repeat(is_chain, length)]] = True
    if not chains or scope.share(gain_ns) < KERNEL_SHARE:
        return None
    evidence = {
        "chains_per_step": round(chains / scope.step_count, 1),
        "kernels_per_step": scope.per_step(is_member),
        "chains_ms": scope.per_step_ms(total_ns),
    }
    message = f"chains of {MIN_CHAIN} and more elementwise {scope.noun} take {scope.in_words(total_ns)}"
    return RuleHit(gain_ns, message, evidence, np.where(is_member, context.time_by_activity, 0))


def casts(context: DiagnosisContext) -> RuleHit | None:
    return time_hit(context, context.is_cast, "kernels that only convert between number formats take")


def no_tensor_cores(context: DiagnosisContext) -> RuleHit | None:
    return time_hit(context, context.is_fp32_matmul, "matrix multiplies in fp32, without tensor cores, take")


def time_hit(context: DiagnosisContext, mask: np.ndarray, subject: str, share: float = KERNEL_SHARE) -> RuleHit | None:
    """The hit for kernels of `mask` if they take at least this `share` of the span. `subject` is the beginning of its
    message."""
    scope, total_ns = context.scope, context.scope.busy_ns(mask)
    if not total_ns or scope.share(total_ns) < share:
        return None
    evidence = {"kernels_per_step": scope.per_step(mask), "ms": scope.per_step_ms(total_ns)}
    message = f"{subject} {scope.in_words(total_ns)}"
    return RuleHit(total_ns, message, evidence, np.where(mask, context.time_by_activity, 0))


def unfused_attention(context: DiagnosisContext) -> RuleHit | None:
    """The chains of kernels that a fused kernel replaces, with their products. If no chain of the backward pass was
    found, its time is bounded by that of the forward pass."""
    scope, attention = context.scope, context.attention
    forward_ns, known_backward_ns = scope.busy_ns(attention.forward), scope.busy_ns(attention.backward)
    in_backward = scope.is_in_range(BACKWARD.search) & scope.is_in_span & scope.is_kernel
    backward_ns = known_backward_ns or min(scope.busy_ns(in_backward), round(BACKWARD_OF_ATTENTION * forward_ns))
    total_ns = scope.busy_ns(attention.chains) + (0 if known_backward_ns else backward_ns)
    without_products_ns = scope.busy_ns(attention.chains & ~attention.is_product)
    # If the backward pass is only bounded, without_products_ns lacks it, so the threshold is lowered in proportion.
    found_share = (forward_ns + known_backward_ns) / max(total_ns, 1)
    if not without_products_ns or scope.share(without_products_ns) < KERNEL_SHARE * found_share:
        return None
    evidence = {
        "kernels_per_step": scope.per_step(attention.chains),
        "forward_ms": scope.per_step_ms(forward_ns),
        "backward_ms": scope.per_step_ms(backward_ns),
        "backward_is_a_bound": not known_backward_ns and backward_ns > 0,
        "without_matmuls_ms": scope.per_step_ms(without_products_ns),
    }
    message = (
        f"attention runs as separate {scope.noun} (product, softmax, product), which take {scope.in_words(total_ns)}"
    )
    if evidence["backward_is_a_bound"]:
        message += f", counting at most {BACKWARD_OF_ATTENTION} times the forward pass for the backward pass"
    return RuleHit(total_ns, message, evidence, np.where(attention.chains, context.time_by_activity, 0))


def unfused_optimizer(context: DiagnosisContext) -> RuleHit | None:
    mask, scope = context.is_unfused_update, context.scope
    idle_ns = np.where(mask, context.idle_by_activity(GPU, LAUNCHING), 0)
    total_ns = scope.busy_ns(mask) + int(idle_ns.sum())
    if not total_ns or scope.share(total_ns) < KERNEL_SHARE:
        return None
    evidence = {
        "kernels_per_step": scope.per_step(mask),
        "many_from": MANY_OPTIMIZER_KERNELS,
        "running_ms": scope.per_step_ms(scope.busy_ns(mask)),
        "mean_us": round(float(scope.activities.duration_ns[mask].mean()) / 1e3, 3),
    }
    waiting = "the time before each" if scope.trace.is_cpu_only else "the GPU's waiting for them"
    message = f"the optimizer's many {scope.noun}, and {waiting}, take"
    ns_by_activity = np.where(mask, context.time_by_activity, 0) + idle_ns
    return RuleHit(total_ns, f"{message} {scope.in_words(total_ns)}", evidence, ns_by_activity)


def exposed_communication(context: DiagnosisContext) -> RuleHit | None:
    scope = context.scope
    is_communication = scope.is_of_class("communication") & scope.is_in_span
    total_ns, exposed_ns = scope.busy_ns(is_communication), scope.parts_ns[COMMUNICATION]
    overlap = (total_ns - exposed_ns) / max(total_ns, 1)
    if overlap >= OVERLAP_SHARE or scope.share(exposed_ns) < KERNEL_SHARE:
        return None
    evidence = {"communication_ms": scope.per_step_ms(total_ns), "overlap": round(overlap, 4)}
    message = f"communication that is not overlapped by computation takes {scope.in_words(exposed_ns)}"
    return RuleHit(exposed_ns, message, evidence, np.where(is_communication, context.time_by_activity, 0))


def low_occupancy(context: DiagnosisContext) -> RuleHit | None:
    """Kernels of at least one wave that leave more than half of the GPU's warps empty, except FAST_AT_LOW_OCCUPANCY."""
    filling, scope = context.filling, context.scope
    mask = scope.is_in_span & scope.is_kernel & ~scope.is_of_class(*FAST_AT_LOW_OCCUPANCY)
    mask &= (filling.occupancy < LOW_OCCUPANCY) & (filling.waves >= 1)
    message = "kernels that leave more than half of the warps empty take"
    return _empty_hit(context, mask, 1 - filling.occupancy, message, "mean_empty_warps")


def wave_tail(context: DiagnosisContext) -> RuleHit | None:
    """Kernels of more than one wave whose last wave leaves many places empty."""
    filling, scope = context.filling, context.scope
    mask = scope.is_in_span & scope.is_kernel & (filling.tail >= EMPTY_TAIL) & (filling.waves > 1)
    return _empty_hit(context, mask, filling.tail, "kernels whose last wave leaves many places empty take", "mean_tail")


def _empty_hit(
    context: DiagnosisContext, mask: np.ndarray, empty_share: np.ndarray, subject: str, mean_name: str
) -> RuleHit | None:
    """The hit for the activities of `mask`. `empty_share` is, by activity, the share of the GPU that it leaves empty
    (NaN if unknown). `subject` begins the message; `mean_name` is the key of the mean share in the evidence."""
    scope = context.scope
    total_ns = scope.busy_ns(mask)
    if not total_ns or scope.share(total_ns) < KERNEL_SHARE:
        return None
    ns_by_activity = np.where(mask, context.time_by_activity * np.nan_to_num(empty_share), 0).astype(np.int64)
    evidence = {
        "kernels_per_step": scope.per_step(mask),
        "running_ms": scope.per_step_ms(total_ns),
        mean_name: round(float(ns_by_activity.sum() / context.time_by_activity[mask].sum()), 4),
    }
    return RuleHit(
        min(int(ns_by_activity.sum()), total_ns), f"{subject} {scope.in_words(total_ns)}", evidence, ns_by_activity
    )
