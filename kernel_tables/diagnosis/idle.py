"""Why the GPU was idle: every nanosecond of its gaps has one cause.

The host causes a gap if the activity that ends it was launched too late. The gap is assigned to what held up the host
until that launch: first the stretches without any API call, which are in the gap itself, and the launch
after them; then the calls in which it allocated, copied or waited. These delay more than the next launch: without
them the host would be further ahead, so the part of a call's time that no gap has used yet counts for later gaps.
The rest is launching itself.
"""

from dataclasses import dataclass

import numpy as np

from kernel_tables.attribution.arrays import compact, map_blocks, map_narrow_blocks
from kernel_tables.attribution.launches import NO_LAUNCH
from kernel_tables.diagnosis.blocking import (
    ALLOCATED,
    ALLOCATION_IN_STEP,
    CAUSES,
    COPIED,
    COPY_IN_STEP,
    PAGEABLE_COPY,
    SYNC,
    SYNC_IN_STEP,
    Blocking,
)
from kernel_tables.diagnosis.calls import NO_CALL
from kernel_tables.diagnosis.devices import Device
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.errors import NotConserved
from kernel_tables.intervals import Intervals, covered_ns, gaps, overlapping_pairs, union

# From the call to the start of a kernel that finds the GPU idle, H200: 5.4 us at least, 7.3 us the median of 15,772.
LAUNCH_LATENCY_NS = 6_000
# The host makes no CUDA call for this long: 70 times the 14 us that it takes per launch in eager PyTorch.
LONG_PAUSE_NS = 1_000_000
# From one cudaFree of empty_cache() to the next, H200 under nsys: 15 us at most.
LONGEST_BETWEEN_NS = 50_000
HOST, LAUNCHING, GPU, UNKNOWN = "idle_host", "launching", "gpu", "unknown"
IN_ORDER = (ALLOCATION_IN_STEP, ALLOCATED, PAGEABLE_COPY, COPY_IN_STEP, COPIED, SYNC_IN_STEP, SYNC)


@dataclass(frozen=True)
class Idle:
    """The gaps of a device in order of time: the activity that ended each, and its nanoseconds by cause, which add up
    to it. Causes of no gap are left out.

    `at_most` has, by cause of IN_ORDER, the nanoseconds that would be gone if its calls took no time: what they claim,
    and the pauses and launches after them, which a host that is further ahead hides. `only_launches` are the gaps
    before which no call held up the host since its last late launch: such a gap may be due to an earlier call, and to
    launching all the same.
    """

    next_row: np.ndarray
    by_cause: dict[str, np.ndarray]
    at_most: dict[str, np.ndarray]
    only_launches: np.ndarray
    dtype: np.dtype  # that the length of every gap fits into


def idle_of(scope: Scope, blocking: Blocking, device: Device) -> Idle:
    """The gaps of one device by cause. Raises NotConserved if the causes do not add up to the gaps."""
    activities, (between, next_row) = scope.activities, device.gaps
    length = map_narrow_blocks(lambda gap: between.end_ns[gap] - between.start_ns[gap], len(between))

    def is_of_host(gap: slice) -> np.ndarray:
        """Whether the activity that ended each gap was launched too late."""
        return launched[gap] & (activities.launch_ns_of(next_row[gap]) + LAUNCH_LATENCY_NS > between.start_ns[gap])

    launched = map_blocks(lambda gap: activities.launch_row[next_row[gap]] != NO_LAUNCH, len(length), bool)
    of_host = map_blocks(is_of_host, len(length), bool)
    unexplained = length if of_host.all() else np.where(of_host, length, 0)
    by_cause, at_most, only_launches = {}, {}, np.ones(len(length), bool)
    if not launched.all():
        by_cause[UNKNOWN] = np.where(launched, 0, length)
    if (of_gpu := launched & ~of_host).any():
        by_cause[GPU] = np.where(of_gpu, length, 0)
    if len(pauses := _pauses(scope, device)):
        overlaps = overlapping_pairs(pauses.start_ns, pauses.end_ns, between)
        gap, index = np.unique(overlaps.other_index, return_inverse=True)
        paused = np.zeros(len(gap), np.int64)
        np.add.at(paused, index, overlaps.end_ns - overlaps.start_ns)
        by_cause[HOST] = np.zeros(len(length), length.dtype)
        late_ns = between.end_ns[gap] - activities.launch_ns_of(next_row[gap])
        by_cause[HOST][gap] = np.minimum(unexplained[gap], paused + late_ns)
        unexplained, only_launches = unexplained - by_cause[HOST], by_cause[HOST] == 0
    held_up = {cause: held_up_by(scope, blocking, device, cause) for cause in IN_ORDER}
    held_up = {cause: calls for cause, calls in held_up.items() if len(calls)}
    order = np.flatnonzero(of_host) if held_up else np.empty(0, np.intp)
    until = activities.launch_ns_of(next_row[order])
    by_launch = np.argsort(until, kind="stable")
    order, until = order[by_launch], until[by_launch]
    since = np.append(min(device.start_ns[0], *until[:1].tolist()) if len(until) else 0, until[:-1])
    for cause, calls in held_up.items():
        claimed, reached = np.zeros((2, len(unexplained)), np.int64)
        held_up_ns = covered_ns(calls, since, until)
        claimed[order] = claims(unexplained[order], held_up_ns)
        reached[order] = claims(length[order], held_up_ns + _lost_before(scope, device, calls, held_up_ns))
        only_launches[order] &= held_up_ns == 0
        by_cause[cause], at_most[cause], unexplained = claimed, reached, unexplained - claimed
    by_cause[LAUNCHING] = unexplained
    by_cause = {cause: compact(ns) for cause, ns in by_cause.items() if ns.any()}
    if not (sum(by_cause.values()) == length).all():
        raise NotConserved(f"the causes of the gaps of device {device.number} are not the gaps")
    return Idle(next_row, by_cause, at_most, only_launches, length.dtype)


def claims(gap_ns: np.ndarray, held_up_ns: np.ndarray) -> np.ndarray:
    """For each gap in turn, the time that the host was held up before it and that no earlier gap has used."""
    if not len(gap_ns):
        return gap_ns
    balance = np.cumsum(held_up_ns - gap_ns)
    after = balance - np.minimum(np.minimum.accumulate(balance), 0)
    before = np.append(0, after[:-1])
    return before + held_up_ns - after


def _pauses(scope: Scope, device: Device) -> Intervals:
    """The long stretches of the device's span in which its process made no API call."""
    calls = scope.calls
    busy = calls.during(calls.process == device.process)
    return gaps(busy, device.first_ns, device.last_ns, LONG_PAUSE_NS)


def _lost_before(scope: Scope, device: Device, calls: Intervals, held_up_ns: np.ndarray) -> np.ndarray:
    """By gap: for the first, how far the host was held up before the first activity of a device, as in later steps.

    A window opens when the GPU is done, so the calls in its first step found nothing left to wait for.
    """
    before_ns = np.zeros(len(held_up_ns), np.int64)
    if len(before_ns) and covered_ns(calls, *np.array([[device.first_ns], [device.start_ns[0]]])).any():
        before_ns[0] = held_up_ns.sum() // max(len(scope.steps) - 1, 1)
    return before_ns


def held_up_by(scope: Scope, blocking: Blocking, device: Device, cause: str) -> Intervals:
    """The time in which the device's process was in a call of this cause, or between two that allocate or free."""
    calls = scope.calls
    rows = np.flatnonzero(blocking.call_cause == CAUSES.index(cause))
    rows = rows[calls.process[rows] == device.process]
    start_ns, end_ns = calls.start_ns[rows], calls.end_ns[rows]
    if cause in (ALLOCATION_IN_STEP, ALLOCATED):
        before = calls.previous(rows)
        follows = (before != NO_CALL) & np.isin(before, rows)
        follows &= start_ns - calls.end_ns[before] < LONGEST_BETWEEN_NS
        start_ns = np.where(follows, np.minimum(start_ns, calls.end_ns[before]), start_ns)
    return union(start_ns, end_ns)
