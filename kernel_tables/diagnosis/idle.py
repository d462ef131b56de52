"""Why the GPU was idle: every nanosecond of its gaps has one cause.

The host causes a gap if the activity that ends it was launched too late. The gap is assigned to what held up the host
until that launch: first pauses, in which it made no API call, and which are in the gap itself, and the launch after
them; then the calls in which it allocated, copied or waited. Such a call delays more than the next launch: without it
the host would be further ahead. So the part of its time that no gap has used yet counts for later gaps. The rest is
launching itself.
"""

from dataclasses import dataclass

import numpy as np

from kernel_tables.attribution.arrays import compact, map_blocks, map_narrow_blocks, sums_by_group
from kernel_tables.attribution.launches import NO_LAUNCH
from kernel_tables.diagnosis.blocking import ALLOCATIONS, CAUSES, Blocking
from kernel_tables.diagnosis.calls import NO_CALL
from kernel_tables.diagnosis.devices import Device
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.errors import NotConserved
from kernel_tables.intervals import Intervals, covered_ns, gaps, overlapping_pairs, union

# From the call to the start of a kernel that finds the GPU idle: on an H200 at least 5.4 µs, the median 7.3 µs.
LAUNCH_LATENCY_NS = 6_000
# The host makes no CUDA call for this long: 70 times the 14 us that it takes per launch in eager PyTorch.
LONG_PAUSE_NS = 1_000_000
# From one cudaFree of empty_cache() to the next: at most 15 µs on an H200 under nsys.
MAX_BETWEEN_ALLOCATIONS_NS = 50_000
HOST, LAUNCHING, GPU, UNKNOWN = "idle_host", "launching", "gpu", "unknown"


@dataclass(frozen=True)
class Idle:
    """The gaps of a device in order of time. An array has one entry per gap. Causes of no gap are left out.

    `at_most` are the nanoseconds that would be gone if the calls of a cause took no time: what they claim, and the
    pauses and launches after them, which a host that is further ahead hides. `only_launches` is whether no pause and no
    call held up the host since its last late launch: the gap may be due to an earlier call, but also to launching.
    """

    next_row: np.ndarray  # the activity that ended each
    by_cause: dict[str, np.ndarray]  # nanoseconds, which add up to the gap
    at_most: dict[str, np.ndarray]  # by cause of CAUSES
    only_launches: np.ndarray
    dtype: np.dtype  # into which every gap fits


def idle_of(scope: Scope, blocking: Blocking, device: Device) -> Idle:
    """The gaps of one device by cause. Raises NotConserved if the causes do not add up to the gaps."""
    activities, (between, next_row) = scope.activities, device.gaps
    length = map_narrow_blocks(lambda gap: between.end_ns[gap] - between.start_ns[gap], len(between))
    has_launch = map_blocks(lambda gap: activities.launch_row[next_row[gap]] != NO_LAUNCH, len(length), bool)

    def is_late(gap: slice) -> np.ndarray:
        """Whether the activity that ended each gap was launched too late."""
        return has_launch[gap] & (activities.launch_ns_of(next_row[gap]) + LAUNCH_LATENCY_NS > between.start_ns[gap])

    of_host = map_blocks(is_late, len(length), bool)
    unexplained = length if of_host.all() else np.where(of_host, length, 0)
    by_cause, at_most, only_launches = {}, {}, np.ones(len(length), bool)
    if not has_launch.all():
        by_cause[UNKNOWN] = np.where(has_launch, 0, length)
    if (of_gpu := has_launch & ~of_host).any():
        by_cause[GPU] = np.where(of_gpu, length, 0)
    if len(pauses := _pauses(scope, device)):
        overlaps = overlapping_pairs(pauses.start_ns, pauses.end_ns, between)
        gap, index = np.unique(overlaps.other_index, return_inverse=True)
        paused_ns = sums_by_group(index, overlaps.end_ns - overlaps.start_ns, len(gap))
        launching_ns = between.end_ns[gap] - activities.launch_ns_of(next_row[gap])
        by_cause[HOST] = np.zeros(len(length), length.dtype)
        by_cause[HOST][gap] = np.minimum(unexplained[gap], paused_ns + launching_ns)
        unexplained, only_launches = unexplained - by_cause[HOST], by_cause[HOST] == 0
    calls_by_cause = {cause: held_up_by(scope, blocking, device, cause) for cause in CAUSES}
    calls_by_cause = {cause: calls for cause, calls in calls_by_cause.items() if len(calls)}
    # the late launches in order of time, each with the time since the one before
    late = np.flatnonzero(of_host) if calls_by_cause else np.empty(0, np.intp)
    until_ns = activities.launch_ns_of(next_row[late])
    by_launch = np.argsort(until_ns, kind="stable")
    late, until_ns = late[by_launch], until_ns[by_launch]
    since_ns = np.append(min(device.start_ns[0], *until_ns[:1].tolist()) if len(until_ns) else 0, until_ns[:-1])
    for cause, calls in calls_by_cause.items():
        claimed, reachable = np.zeros((2, len(unexplained)), np.int64)
        held_up_ns = covered_ns(calls, since_ns, until_ns)
        claimed[late] = claims(unexplained[late], held_up_ns)
        reachable[late] = claims(length[late], held_up_ns + _lost_before(scope, device, calls, held_up_ns))
        only_launches[late] &= held_up_ns == 0
        by_cause[cause], at_most[cause], unexplained = claimed, reachable, unexplained - claimed
    by_cause[LAUNCHING] = unexplained
    by_cause = {cause: compact(ns) for cause, ns in by_cause.items() if ns.any()}
    if not (sum(by_cause.values()) == length).all():
        raise NotConserved(f"the causes of the gaps of device {device.number} are not the gaps")
    return Idle(next_row, by_cause, at_most, only_launches, length.dtype)


def claims(gap_ns: np.ndarray, held_up_ns: np.ndarray) -> np.ndarray:
    """By gap: how much of it the time that the host was held up accounts for. Gaps use it in turn."""
    if not len(gap_ns):
        return gap_ns
    balance = np.cumsum(held_up_ns - gap_ns)
    after = balance - np.minimum(np.minimum.accumulate(balance), 0)
    before = np.append(0, after[:-1])
    return before + held_up_ns - after


def _pauses(scope: Scope, device: Device) -> Intervals:
    """The long stretches of the device's span in which its process made no API call."""
    calls = scope.calls
    busy = calls.time_of(calls.process == device.process)
    return gaps(busy, device.first_ns, device.last_ns, LONG_PAUSE_NS)


def _lost_before(scope: Scope, device: Device, calls: Intervals, held_up_ns: np.ndarray) -> np.ndarray:
    """By late gap: 0, but for the first the mean time of a later step in these calls, if one precedes all activities.

    A window opens when the GPU is done, so the calls at the begin of its first step found nothing to wait for.
    """
    before_ns = np.zeros(len(held_up_ns), np.int64)
    if len(before_ns) and covered_ns(calls, *np.array([[device.first_ns], [device.start_ns[0]]])).any():
        before_ns[0] = held_up_ns.sum() // max(len(scope.step_ranges) - 1, 1)
    return before_ns


def held_up_by(scope: Scope, blocking: Blocking, device: Device, cause: str) -> Intervals:
    """The time in which the device's process was in a call of this cause, or shortly between two of memory."""
    calls = scope.calls
    rows = np.flatnonzero(blocking.call_cause == CAUSES.index(cause))
    rows = rows[calls.process[rows] == device.process]
    start_ns, end_ns = calls.start_ns[rows], calls.end_ns[rows]
    if cause in ALLOCATIONS:
        before = calls.previous(rows)
        follows = (before != NO_CALL) & np.isin(before, rows)
        follows &= start_ns - calls.end_ns[before] < MAX_BETWEEN_ALLOCATIONS_NS
        start_ns = np.where(follows, np.minimum(start_ns, calls.end_ns[before]), start_ns)
    return union(start_ns, end_ns)
