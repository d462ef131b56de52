"""Rules on time in which the GPU waits for the host, or a program for its data, which the ranges of PyTorch's
DataLoader show. Each returns a RuleHit, or None."""

import re
from functools import partial
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution.arrays import blocks
from kernel_tables.attribution.launches import NO_LAUNCH
from kernel_tables.diagnosis import blocking
from kernel_tables.diagnosis.calls import LAUNCH
from kernel_tables.diagnosis.context import DiagnosisContext, RuleHit
from kernel_tables.diagnosis.devices import IDLE_SHARE, Device
from kernel_tables.diagnosis.idle import HOST, LAUNCHING, LONG_PAUSE_NS
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.intervals import Intervals, covered_between_ns, covered_ns, intersection, union
from kernel_tables.reading.times import NEVER_NS
from kernel_tables.units import duration

CAUSE_SHARE = 0.05  # the threshold for one cause: a third of IDLE_SHARE, since there are several
MIN_SHARE = 0.01  # a smaller gain cannot be distinguished from the scatter of processes
NEXT_BATCH = re.compile(r"enumerate\(DataLoader\)")  # PyTorch's range around a DataLoader's `__next__`
BY_WORKERS = re.compile(NEXT_BATCH.pattern + ".*MultiProcessing")


def launch_bound(context: DiagnosisContext) -> RuleHit | None:
    ns_by_activity = context.idle_by_activity(LAUNCHING)
    ns_by_activity[context.claimed_ns > 0] = 0
    idle_ns, scope = int(ns_by_activity.sum()), context.scope
    if scope.share(idle_ns) < IDLE_SHARE:
        return None
    launches = int((scope.is_in_span & scope.activities.has_launch).sum())
    evidence = _us_per_launch(context, launches) | {"launches_per_step": round(launches / scope.step_count, 1)}
    message = f"the GPU waits {scope.in_words(idle_ns)} for kernels that the host launches too late"
    return RuleHit(idle_ns, message, evidence, ns_by_activity)


def wait_hit(context: DiagnosisContext, cause: str, share: float, waits: str) -> RuleHit | None:
    """The hit if, for at least this `share` of its span, the GPU idles between activities or only copies because of
    `cause`. `waits` says when it waits, in words."""
    scope, is_copy = context.scope, context.blocking.copy_cause == blocking.CAUSES.index(cause)
    if not (context.has_idle(cause) or is_copy.any()):
        return None
    is_copy &= scope.is_in_span
    # What is claimed of an activity is first its own time, and only what exceeds that is of the gap before it.
    claimed_idle_ns = np.maximum(context.claimed_ns - context.time_by_activity, 0)
    idle_ns = np.maximum(context.idle_by_activity(cause) - claimed_idle_ns, 0)
    copying_ns = context.exposed_ns(is_copy)
    total_ns = int(idle_ns.sum()) + copying_ns
    if scope.share(total_ns) < share or not total_ns:
        return None
    evidence = _evidence_of_calls(context, cause)
    if copying_ns:
        evidence["copying_alone_ms"] = scope.per_step_ms(copying_ns)
    at_edges_ns = context.idle_at_edges_ns(cause)  # is reported with the others, but does not help to reach `share`
    gain_ns = max(total_ns, context.avoidable_idle_ns(cause) + copying_ns) + at_edges_ns
    total_ns += at_edges_ns
    message = f"the GPU waits {scope.in_words(total_ns)} {waits}"
    if cause in blocking.ALLOCATIONS:
        # Without the version at the end: cudaMalloc_v3020.
        counts = [f"{count:.3g} {name.partition('_v')[0]}" for name, count in evidence["functions_per_step"].items()]
        message += f" ({', '.join(counts)} per step)"
    if scope.share(gain_ns - total_ns) >= MIN_SHARE:
        more = duration(1e6 * scope.per_step_ms(gain_ns - total_ns))
        message += f", and up to {more} more because the host is then no longer ahead of it"
    return RuleHit(gain_ns, message, evidence, idle_ns + np.where(is_copy, context.time_by_activity, 0))


sync_in_step = partial(
    wait_hit, cause=blocking.SYNC_IN_STEP, share=MIN_SHARE, waits="after the host waited for it in the middle of a step"
)
allocation_in_step = partial(
    wait_hit, cause=blocking.ALLOCATION_IN_STEP, share=MIN_SHARE,
    waits="while the host allocates or frees memory within a step",
)  # fmt: skip
copy_in_step = partial(wait_hit, cause=blocking.COPY_IN_STEP, share=MIN_SHARE, waits="for copies within a step")
pageable_copy = partial(
    wait_hit, cause=blocking.PAGEABLE_COPY, share=MIN_SHARE, waits="for copies from or to pageable memory"
)
idle_sync = partial(
    wait_hit, cause=blocking.IDLE_SYNC, share=CAUSE_SHARE,
    waits="after the host waited for it at the end of a step or outside of steps",
)  # fmt: skip
idle_copy = partial(wait_hit, cause=blocking.IDLE_COPY, share=CAUSE_SHARE, waits="for copies outside of steps")
idle_allocation = partial(
    wait_hit, cause=blocking.IDLE_ALLOCATION, share=MIN_SHARE,
    waits="while the host allocates or frees memory outside of steps",
)  # fmt: skip


def idle_host(context: DiagnosisContext) -> RuleHit | None:
    if not context.has_idle(HOST):
        return None
    ns_by_activity = np.maximum(context.idle_by_activity(HOST) - context.claimed_ns, 0)
    idle_ns, scope = int(ns_by_activity.sum()), context.scope
    if scope.share(idle_ns) < CAUSE_SHARE:
        return None
    pauses = int((ns_by_activity > 0).sum())
    message = (
        f"the GPU waits {scope.in_words(idle_ns)} while the host makes no CUDA call for"
        f" {LONG_PAUSE_NS // 1_000_000} ms or longer"
    )
    if scope.compiled_in_words:
        message += f" ({scope.compiled_in_words} in the window, which is a part of it)"
    longest_ms = float(ns_by_activity.max()) / 1e6
    return RuleHit(
        idle_ns, message, {"pauses_per_step": pauses / scope.step_count, "longest_ms": longest_ms}, ns_by_activity
    )


def _evidence_of_calls(context: DiagnosisContext, cause: str) -> dict[str, object]:
    """How often (in all and by function) and for how long calls of `cause` held up the host, from the first start to
    the last end of the devices' spans."""
    calls, scope = context.scope.calls, context.scope
    first_ns = min(device.first_ns for device in scope.devices)
    last_ns = max(device.last_ns for device in scope.devices)
    mask = context.blocking.call_cause == blocking.CAUSES.index(cause)
    mask &= (calls.start_ns >= first_ns) & (calls.start_ns < last_ns)
    counts = np.bincount(calls.function[mask], minlength=len(calls.functions))
    functions = zip(calls.functions, counts.tolist(), strict=True)
    return {
        "calls_per_step": round(int(mask.sum()) / scope.step_count, 2),
        "functions_per_step": {name: round(count / scope.step_count, 2) for name, count in functions if count},
        "host_ms": scope.per_step_ms(calls.time_of(mask).total_ns),
    }


class _HostTimes(NamedTuple):
    """Nanoseconds of the host from the first to the last launch of a device, by what it did. They add up to all."""

    driver_call: int  # in calls that launch
    waiting: int  # in other calls that hold it up
    other_calls: int
    python_and_dispatcher: int  # in no call


def _us_per_launch(context: DiagnosisContext, launches: int) -> dict[str, float]:
    """The fields of _HostTimes in microseconds per launch. If several threads are busy at once, the time counts once,
    for the first of the fields that applies."""
    total_ns = np.sum([_host_times(context, device) for device in context.scope.devices], axis=0)
    times = zip(_HostTimes._fields, total_ns.tolist(), strict=True)
    return {f"{name}_us": round(ns / 1e3 / max(launches, 1), 3) for name, ns in times}


def _host_times(context: DiagnosisContext, device: Device) -> _HostTimes:
    """The times of the host between the launches of a device; zeros without launches."""
    calls, activities = context.scope.calls, context.scope.activities
    first_ns, last_ns = NEVER_NS, 0
    for block in blocks(len(device.rows)):
        rows = device.rows[block]
        launch_ns = activities.launch_ns_of(rows[activities.launch_row[rows] != NO_LAUNCH])
        first_ns = min(first_ns, int(launch_ns.min(initial=NEVER_NS)))
        last_ns = max(last_ns, int(launch_ns.max(initial=0)))
    if first_ns > last_ns:
        return _HostTimes(0, 0, 0, 0)
    is_of_process = calls.process == device.process
    launching = calls.time_of(is_of_process & (calls.kind == LAUNCH))
    waiting = calls.time_of(is_of_process & (context.blocking.call_cause >= 0))
    parts = calls.time_of(is_of_process), launching, waiting, intersection(waiting, launching)
    in_any_ns, launching_ns, waiting_ns, both_ns = (covered_between_ns(part, first_ns, last_ns) for part in parts)
    others_ns = in_any_ns - launching_ns - waiting_ns + both_ns
    return _HostTimes(launching_ns, waiting_ns - both_ns, others_ns, last_ns - first_ns - in_any_ns)


def data_waits(scope: Scope, device: Device) -> Intervals:
    """The time in which a thread that runs the steps (without steps, one that launches) was in a DataLoader's
    `__next__`, within the device's span.

    Other threads may wait for batches that nobody needs yet, so they do not count.
    """
    ranges, names = scope.trace.range_arrays, scope.trace.range_paths.names
    codes = [code for code, name in enumerate(names) if NEXT_BATCH.match(name)]
    if scope.has_steps:
        threads = np.unique(ranges.thread[scope.step_ranges])
    else:
        threads = np.unique(scope.activities.thread[device.rows])
    is_wait = np.isin(ranges.name, codes) & np.isin(ranges.thread, threads) & (ranges.process == device.process)
    span = union(np.array([device.first_ns]), np.array([device.last_ns]))
    return intersection(union(ranges.start_ns[is_wait], ranges.end_ns[is_wait]), span)


def waiting_for_data(context: DiagnosisContext) -> RuleHit | None:
    """On a GPU, only its idle time counts: a wait while it computes costs nothing. The launch after a wait counts as
    part of the wait. The wait before the first activity (`first_ns`) counts only if the others reach the threshold."""
    scope, ns_by_activity = context.scope, np.zeros(len(context.scope.activities), np.int64)
    gain_ns, first_ns, longest_ns, batches = 0, 0, 0, 0
    for device in scope.devices:
        waits = data_waits(scope, device)
        if not len(waits):
            continue
        idle, next_row = device.gaps
        waited_ns = covered_ns(waits, idle.start_ns, idle.end_ns)
        launching_ns = idle.end_ns - scope.activities.launch_ns_of(next_row)
        ns_by_activity[next_row] += np.where(waited_ns > 0, np.minimum(idle.lengths_ns, waited_ns + launching_ns), 0)
        gain_ns += waits.total_ns if scope.trace.is_cpu_only else int(ns_by_activity[next_row].sum())
        first_ns += 0 if scope.trace.is_cpu_only else max(int(device.start_ns[0] - waits.start_ns[0]), 0)
        batches += len(waits)
        longest_ns = max(longest_ns, int(waits.lengths_ns.max(initial=0)))
    if scope.share(gain_ns) < CAUSE_SHARE:
        return None
    gain_ns += first_ns
    waiter = "the program" if scope.trace.is_cpu_only else "the GPU"
    message = f"{waiter} waits {scope.in_words(gain_ns)} for the next batch of a DataLoader"
    if any(map(BY_WORKERS.match, scope.trace.range_paths.names)):
        message += (
            ", maybe longer without a profiler, which slows only the rest of a step, not the DataLoader's workers"
        )
    evidence = {"batches_per_step": round(batches / scope.step_count, 2), "longest_ms": longest_ns / 1e6}
    return RuleHit(gain_ns, message, evidence, ns_by_activity)
