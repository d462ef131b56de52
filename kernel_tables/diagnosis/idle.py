"""Why the GPU was idle: every nanosecond of its gaps has one cause.

The host causes a gap if the activity that ends it was launched too late. The gap is assigned to what held up the host
until that launch, in this order:

1. Pauses within the gap, in which the host made no API call, and the launch after them.
2. Calls in which the host allocated, copied or waited. Such a call delays more than the next launch: without it, the
   host would be further ahead. So the part of its time that no gap has used yet counts for later gaps.
3. Launching itself: the rest.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution.arrays import compact, map_blocks, map_narrow_blocks, sums_by_group
from kernel_tables.attribution.launches import NO_LAUNCH
from kernel_tables.diagnosis.blocking import ALLOCATIONS, CAUSES, Blocking
from kernel_tables.diagnosis.calls import NO_CALL
from kernel_tables.diagnosis.devices import Device
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.errors import NotConserved
from kernel_tables.intervals import Intervals, covered_between_ns, covered_ns, gaps, overlapping_pairs, union

# From the call to the start of a kernel that finds the GPU idle: on an H200 at least 5.4 µs, the median 7.3 µs.
LAUNCH_LATENCY_NS = 6_000
# The host makes no CUDA call for this long: 70 times the 14 us that it takes per launch in eager PyTorch.
LONG_PAUSE_NS = 1_000_000
# From one cudaFree of empty_cache() to the next: at most 15 µs on an H200 under nsys.
MAX_BETWEEN_ALLOCATIONS_NS = 50_000
# Causes of gaps besides CAUSES. GPU: the activity was launched in time. UNKNOWN: its launch is not in the capture.
HOST, LAUNCHING, GPU, UNKNOWN = "idle_host", "launching", "gpu", "unknown"


@dataclass(frozen=True)
class Idle:
    """The gaps of a device in order of time. An array has one entry per gap. Causes of no gap are left out."""

    next_row: np.ndarray  # the activity that ended the gap
    ns_by_cause: dict[str, np.ndarray]  # the parts of the gap, which add up to it
    # By cause of CAUSES, what would be gone if its calls took no time: what they claim, and the pauses and launches
    # after them, which a host that is further ahead hides.
    avoidable_ns: dict[str, np.ndarray]
    # Whether no pause and no call held up the host since its last late launch. Then the gap is due to launching, or to
    # an earlier call.
    only_launches: np.ndarray
    dtype: np.dtype  # into which every gap fits


def idle_of(scope: Scope, blocking: Blocking, device: Device) -> Idle:
    """The gaps of one device by cause. Raises NotConserved if the causes do not add up to the gaps."""
    activities = scope.activities
    between, next_row = device.gaps  # the intervals between activities, and the activities that end them
    gap_ns = map_narrow_blocks(lambda gap: between.end_ns[gap] - between.start_ns[gap], len(between))
    has_launch = map_blocks(lambda gap: activities.launch_row[next_row[gap]] != NO_LAUNCH, len(gap_ns), bool)

    def is_late(gap: slice) -> np.ndarray:
        """Whether the activity that ended each gap was launched too late."""
        return has_launch[gap] & (activities.launch_ns_of(next_row[gap]) + LAUNCH_LATENCY_NS > between.start_ns[gap])

    is_of_host = map_blocks(is_late, len(gap_ns), bool)
    unclaimed_ns = gap_ns if is_of_host.all() else np.where(is_of_host, gap_ns, 0)  # shrinks with every cause below
    ns_by_cause, avoidable_ns, only_launches = {}, {}, np.ones(len(gap_ns), bool)
    if not has_launch.all():
        ns_by_cause[UNKNOWN] = np.where(has_launch, 0, gap_ns)
    is_of_gpu = has_launch & ~is_of_host
    if is_of_gpu.any():
        ns_by_cause[GPU] = np.where(is_of_gpu, gap_ns, 0)
    pauses = _pauses(scope, device)
    if len(pauses):
        ns_by_cause[HOST] = _paused_ns(scope, pauses, between, next_row, unclaimed_ns)
        unclaimed_ns, only_launches = unclaimed_ns - ns_by_cause[HOST], ns_by_cause[HOST] == 0
    calls_by_cause = {cause: held_up_by(scope, blocking, device, cause) for cause in CAUSES}
    calls_by_cause = {cause: calls for cause, calls in calls_by_cause.items() if len(calls)}
    late_gaps = np.flatnonzero(is_of_host) if calls_by_cause else np.empty(0, np.intp)  # only needed for calls
    late = _by_launch(scope, device, next_row, late_gaps)
    for cause, calls in calls_by_cause.items():
        claimed_ns, cause_avoidable_ns = np.zeros((2, len(gap_ns)), np.int64)
        held_up_ns = covered_ns(calls, late.since_ns, late.until_ns)
        claimed_ns[late.gap] = claims(unclaimed_ns[late.gap], held_up_ns)
        available_ns = held_up_ns + _lost_before(scope, device, calls, held_up_ns)
        cause_avoidable_ns[late.gap] = claims(gap_ns[late.gap], available_ns)
        only_launches[late.gap] &= held_up_ns == 0
        ns_by_cause[cause], avoidable_ns[cause] = claimed_ns, cause_avoidable_ns
        unclaimed_ns = unclaimed_ns - claimed_ns
    ns_by_cause[LAUNCHING] = unclaimed_ns
    ns_by_cause = {cause: compact(ns) for cause, ns in ns_by_cause.items() if ns.any()}
    if not (sum(ns_by_cause.values()) == gap_ns).all():
        raise NotConserved(f"the causes of the gaps of device {device.number} are not the gaps")
    return Idle(next_row, ns_by_cause, avoidable_ns, only_launches, gap_ns.dtype)


class _LateGaps(NamedTuple):
    """Gaps that ended with a late launch, by the time of the launch."""

    gap: np.ndarray  # its index among all gaps
    since_ns: np.ndarray  # the late launch before; for the first, the start of the device's first activity, or before
    until_ns: np.ndarray  # the late launch that ended the gap


def _by_launch(scope: Scope, device: Device, next_row: np.ndarray, gap: np.ndarray) -> _LateGaps:
    """The gaps with the indices `gap`, in order of their launches. `next_row` is the activity that ended each of all
    gaps."""
    until_ns = scope.activities.launch_ns_of(next_row[gap])
    order = np.argsort(until_ns, kind="stable")
    gap, until_ns = gap[order], until_ns[order]
    first_ns = np.minimum(device.start_ns[:1], until_ns[:1])  # empty without late launches
    return _LateGaps(gap, np.append(first_ns, until_ns[:-1]), until_ns)


def claims(gap_ns: np.ndarray, held_up_ns: np.ndarray) -> np.ndarray:
    """By gap: how much of it is explained by the time that the host was held up (before the launch that ended it). The
    gaps use this time in turn: what one leaves, later ones can use."""
    if not len(gap_ns):
        return gap_ns
    balance = np.cumsum(held_up_ns - gap_ns)
    left_ns = balance - np.minimum(np.minimum.accumulate(balance), 0)  # after each gap; never below zero
    return np.append(0, left_ns[:-1]) + held_up_ns - left_ns


def _pauses(scope: Scope, device: Device) -> Intervals:
    """The long stretches of the device's span in which its process made no API call."""
    calls = scope.calls
    busy = calls.time_of(calls.process == device.process)
    return gaps(busy, device.first_ns, device.last_ns, LONG_PAUSE_NS)


def _paused_ns(
    scope: Scope, pauses: Intervals, between: Intervals, next_row: np.ndarray, unclaimed_ns: np.ndarray
) -> np.ndarray:
    """By gap: how much of its unclaimed time is explained by the `pauses` in it and the launch after them. `between`
    and `next_row` are Device.gaps."""
    overlaps = overlapping_pairs(pauses.start_ns, pauses.end_ns, between)
    gap, index = np.unique(overlaps.other_index, return_inverse=True)
    in_pause_ns = sums_by_group(index, overlaps.end_ns - overlaps.start_ns, len(gap))
    launching_ns = between.end_ns[gap] - scope.activities.launch_ns_of(next_row[gap])
    paused_ns = np.zeros_like(unclaimed_ns)
    paused_ns[gap] = np.minimum(unclaimed_ns[gap], in_pause_ns + launching_ns)
    return paused_ns


def _lost_before(scope: Scope, device: Device, calls: Intervals, held_up_ns: np.ndarray) -> np.ndarray:
    """By late gap: time in these calls that the recording itself saved. It is 0 except for the first gap, if one of the
    calls precedes all activities: then it is the mean time that a later step spends in them. A window opens when the
    GPU is done, so the calls at the begin of its first step found nothing to wait for."""
    lost_ns = np.zeros(len(held_up_ns), np.int64)
    if len(lost_ns) and covered_between_ns(calls, device.first_ns, int(device.start_ns[0])):
        lost_ns[0] = held_up_ns.sum() // max(len(scope.step_ranges) - 1, 1)
    return lost_ns


def held_up_by(scope: Scope, blocking: Blocking, device: Device, cause: str) -> Intervals:
    """The time in which the device's process was in a call of this cause. For allocations, the time between two of
    them on a thread counts, too, if it is shorter than MAX_BETWEEN_ALLOCATIONS_NS."""
    calls = scope.calls
    rows = np.flatnonzero(blocking.call_cause == CAUSES.index(cause))
    rows = rows[calls.process[rows] == device.process]
    start_ns, end_ns = calls.start_ns[rows], calls.end_ns[rows]
    if cause in ALLOCATIONS:
        previous = calls.previous(rows)
        follows = (previous != NO_CALL) & np.isin(previous, rows)
        follows &= start_ns - calls.end_ns[previous] < MAX_BETWEEN_ALLOCATIONS_NS
        start_ns = np.where(follows, np.minimum(start_ns, calls.end_ns[previous]), start_ns)
    return union(start_ns, end_ns)
