"""Why the GPU was idle: every nanosecond of its gaps has one cause.

The host causes a gap if the activity that ends it was launched too late. The gap is assigned to what held up the host
until that launch: first the stretches without any API call, which are in the gap itself, and the launch
after them; then the calls in which it allocated, copied or waited. These delay more than the next launch: without
them the host would be further ahead, so the part of a call's time that no gap has used yet counts for later gaps.
The rest is launching itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
from kernel_tables.diagnosis.devices import Device
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.errors import NotConserved
from kernel_tables.intervals import Intervals, covered_ns, gaps

# From the call to the start of a kernel that finds the GPU idle, H200: 5.4 us at least, 7.3 us the median of 15,772.
LAUNCH_LATENCY_NS = 6_000
# The host makes no CUDA call for this long: 70 times the 14 us that it takes per launch in eager PyTorch.
LONG_PAUSE_NS = 1_000_000
HOST, LAUNCHING, GPU, UNKNOWN = "idle_host", "launching", "gpu", "unknown"
IN_ORDER = (ALLOCATION_IN_STEP, ALLOCATED, PAGEABLE_COPY, COPY_IN_STEP, COPIED, SYNC_IN_STEP, SYNC)


@dataclass(frozen=True)
class Idle:
    """The gaps of a device: the activity that ended each, and its nanoseconds by cause, which add up to it.

    `only_launches` are the gaps before which no call held up the host since its last late launch:
    such a gap may be due to an earlier call, and to launching all the same.
    """

    gaps: Intervals
    next_row: np.ndarray
    by_cause: dict[str, np.ndarray]
    only_launches: np.ndarray


def idle_of(scope: Scope, blocking: Blocking, device: Device) -> Idle:
    """The gaps of one device by cause. Raises NotConserved if the causes do not add up to the gaps."""
    activities, (between, next_row) = scope.activities, device.gaps
    length = between.lengths_ns
    launched = activities.launch_row[next_row] != NO_LAUNCH
    launch_ns = activities.launch_ns[next_row]
    of_host = launched & (launch_ns + LAUNCH_LATENCY_NS > between.start_ns)
    unexplained = np.where(of_host, length, 0)
    by_cause = {GPU: np.where(launched & ~of_host, length, 0), UNKNOWN: np.where(launched, 0, length)}
    paused = covered_ns(_pauses(scope, device), between.start_ns, between.end_ns)
    by_cause[HOST] = np.where(paused > 0, np.minimum(unexplained, paused + between.end_ns - launch_ns), 0)
    unexplained = unexplained - by_cause[HOST]
    order = np.flatnonzero(of_host)
    order = order[np.argsort(launch_ns[order], kind="stable")]
    until = launch_ns[order]
    since = np.append(min(device.start_ns[0], *until[:1].tolist()) if len(until) else 0, until[:-1])
    only_launches = by_cause[HOST] == 0
    for cause in IN_ORDER:
        claimed = np.zeros(len(unexplained), np.int64)
        calls = _held_up(scope, blocking, device, cause)
        if len(calls):
            held_up_ns = covered_ns(calls, since, until)
            claimed[order] = claims(unexplained[order], held_up_ns)
            only_launches[order] &= held_up_ns == 0
        by_cause[cause], unexplained = claimed, unexplained - claimed
    by_cause[LAUNCHING] = unexplained
    if not (sum(by_cause.values()) == length).all():
        raise NotConserved(f"the causes of the gaps of device {device.number} are not the gaps")
    return Idle(between, next_row, by_cause, only_launches)


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
    return gaps(busy, device.first_ns, device.last_ns).longer_than(LONG_PAUSE_NS)


def _held_up(scope: Scope, blocking: Blocking, device: Device, cause: str) -> Intervals:
    """The time in which the device's process was in a call of this cause."""
    of_process = scope.calls.process == device.process
    return scope.calls.during(of_process & (blocking.call_cause == CAUSES.index(cause)))
