"""Why a device was idle: every nanosecond between its activities has one cause.

First go the times of the profiler itself, of functions on the host that a stream waits for, and of an evaluation that
waits for data. Of the rest, the host causes a gap if the activity that ends it was launched too late. It is assigned to
what held up the host until that launch, in this order:

1. Pauses within the gap, in which the host made no API call, and the launch after them.
2. Calls in which the host allocated, copied or waited. Such a call delays more than the next launch: without it, the
   host would be further ahead. So the part of its time that no gap has used yet counts for later gaps.
3. Launching itself: the rest.
"""

import re
from functools import cached_property

import numpy as np

from kernel_tables.capture import KINDS, NONE, numbered, rows_by_value
from kernel_tables.errors import NotConserved
from kernel_tables.intervals import Intervals, covered_ns, gaps, overlapping_pairs, union
from kernel_tables.steps import NO_STEP, Device, Scope

LAUNCH, WAIT, ALLOCATION, FREEING, COPY, OTHER = range(6)  # what a call does to the host
# Causes of idle time, and the rules that report them: first those of calls, and of copies between host and device.
# Idle time is assigned to the first that applies; those that begin with idle_ are outside of steps.
CAUSES = (
    "allocation_in_step", "idle_allocation", "pageable_copy", "copy_in_step", "idle_copy", "sync_in_step", "idle_sync",
)  # fmt: skip
# Causes of gaps besides CAUSES. GPU: the activity was launched in time. UNKNOWN: its launch is not in the capture.
# PROFILER: the profiler itself was busy. FUNCTION: the stream waited for a function on the host. EVALUATION: an
# evaluation waited for data.
HOST, LAUNCHING, GPU, UNKNOWN = "idle_host", "launch_bound", "gpu", "unknown"
PROFILER, FUNCTION, EVALUATION = "profiler", "host_function", "evaluation"


def kind_of(function: str) -> int:
    """What a function of the CUDA runtime or driver, or of HIP, does to the host, by its name."""
    patterns = (  # the first that matches the beginning decides; LAUNCH takes asynchronous copies from COPY
        (LAUNCH, r"cu(da)?(Launch|GraphLaunch|Memset|Memcpy\w*Async)"),
        (COPY, r"cu(da)?Memcpy"),
        (WAIT, r"cu(da)?(Device|Stream|Event|Ctx|Thread)Synchronize"),
        (FREEING, r"cu(da|Mem)(Free(?!\w*Async)|Unmap|Release|AddressFree|HostUnregister)"),
        (ALLOCATION, r"cudaMalloc(?!\w*Async)|cudaHost(Alloc|Register)"),
        (ALLOCATION, r"cuMem(Alloc(?!\w*Async)|Create|Map|SetAccess|Address|Host)"),
    )
    function = re.sub(r"^hip(Ext)?(Module)?", "cuda", function)  # hipExtModuleLaunchKernel: cudaLaunchKernel
    return next((kind for kind, pattern in patterns if re.match(pattern, function)), OTHER)


class HostCalls:
    """Every API call, in the order of capture.calls, and the cause (index in CAUSES) for which it held up the host.

    A call or copy counts as in a step only if the step launches more afterwards; so the call with which a step ends
    does not."""

    def __init__(self, scope: Scope):
        capture = scope.profile.capture
        capture.load_call_ends()
        self.scope, calls = scope, capture.calls
        keys, function = numbered(calls.name)
        self.kind = np.array([*(kind_of(calls.names.get(key, "")) for key in keys.tolist()), OTHER], np.int8)[function]
        self.thread, self.process = calls.thread, calls.process[calls.thread]
        self.start_ns, self.end_ns = calls.start, calls.end
        # Whether start, end and function of each are known.
        self.are_known = len(calls.start) > 0 and capture.source.has_call_names

    def time_of(self, mask: np.ndarray) -> Intervals:
        """The time in which at least one call of `mask` was open."""
        return union(self.start_ns[mask], self.end_ns[mask])

    @cached_property
    def _copies(self) -> dict[str, np.ndarray]:
        return self.scope.profile.capture.source.copies()

    @property
    def has_memory_kinds(self) -> bool:
        """Whether the capture has the sizes of copies and their kinds of memory."""
        is_copy = self.scope.activities.kind == KINDS.index("memcpy")
        return not is_copy.any() or all((column[is_copy] != NONE).any() for column in self._copies.values())

    @cached_property
    def copy_cause(self) -> np.ndarray:
        """By activity: the cause of a copy between host and device, NONE for other activities."""
        scope, copies, pageable = self.scope, self._copies, 0  # ENUM_CUDA_MEM_KIND
        is_pageable = (copies["source"] == pageable) | (copies["target"] == pageable)
        # Up to this size, CUDA copies from pageable memory without waiting ("API synchronization behavior" in its
        # manual). What .item() reads is smaller still, so a small copy is a wait for a value, not a transfer.
        is_small = copies["bytes"] <= 64 * 1024
        in_step = self._launches_more(scope.launch_ns, scope.step_by_activity)
        causes = np.select(
            [is_small & in_step, is_small, is_pageable, in_step],
            [CAUSES.index(name) for name in ("sync_in_step", "idle_sync", "pageable_copy", "copy_in_step")],
            CAUSES.index("idle_copy"),
        )
        is_of_host = scope.is_named(re.compile("Host-to-Device|Device-to-Host").search)
        return np.where(is_of_host & (scope.activities.kind == KINDS.index("memcpy")), causes, NONE)

    @cached_property
    def cause(self) -> np.ndarray:
        """By call: the cause for which it held up the host, NONE if it did not."""
        cause = np.full(len(self.kind), NONE, np.int8)
        rows = np.flatnonzero((self.kind != LAUNCH) & (self.kind != OTHER))
        is_wait = np.isin(self.kind[rows], (WAIT, COPY))  # the others allocate or free
        in_step = self._launches_more(self.start_ns[rows], self._step_of_calls(rows))
        # If a process frees memory only between steps, that makes its steps allocate: it counts as outside, too.
        process, is_freeing = self.process[rows], self.kind[rows] == FREEING
        between, inside = (np.unique(process[is_freeing & mask]) for mask in (~in_step, in_step))
        frees_between = np.isin(process, np.setdiff1d(between, inside))
        cause[rows] = np.select(
            [is_wait & in_step, is_wait, in_step & ~frees_between],
            [CAUSES.index(name) for name in ("sync_in_step", "idle_sync", "allocation_in_step")],
            CAUSES.index("idle_allocation"),
        )
        copies = np.flatnonzero((self.copy_cause != NONE) & (self.scope.launch_row != NONE))
        as_copy = np.full(len(cause) + 1, NONE, np.int8)  # the last entry is for calls without a previous one
        as_copy[self.scope.launch_row[copies]] = self.copy_cause[copies]
        order = np.lexsort((self.start_ns, self.thread))  # a wait after a copy on its thread is a part of it
        follows = np.append(False, self.thread[order[1:]] == self.thread[order[:-1]]) & (self.kind[order] == WAIT)
        of_previous = np.where(follows, as_copy[np.roll(order, 1)], NONE)
        cause[order] = np.where(of_previous != NONE, of_previous, cause[order])
        return np.where(as_copy[:-1] != NONE, as_copy[:-1], cause)

    def _step_of_calls(self, rows: np.ndarray) -> np.ndarray:
        """The index of the step of its process in which each of these calls began; NO_STEP outside."""
        scope, start_ns, step = self.scope, self.start_ns[rows], np.full(len(rows), NO_STEP)
        for process, own_steps in rows_by_value(scope.range_process[scope.step_ranges]).items():
            ranges = scope.step_ranges[own_steps]
            position = np.searchsorted(scope.ranges.start[ranges], start_ns, "right") - 1  # in own_steps
            is_inside = (position >= 0) & (start_ns < scope.ranges.end[ranges[position]])
            is_inside &= self.process[rows] == process
            step[is_inside] = own_steps[position[is_inside]]
        return step

    def _launches_more(self, times_ns: np.ndarray, step: np.ndarray) -> np.ndarray:
        """For each of `times_ns`: whether its step, an entry of `step`, launches more afterwards."""
        scope = self.scope
        last_ns = np.full(len(scope.step_ranges) + 1, -1)  # the last entry is for activities of no step
        np.maximum.at(last_ns, scope.step_by_activity, scope.launch_ns)
        return (step != NO_STEP) & (last_ns[step] > times_ns)

    def holding_up(self, device: Device, cause: str) -> Intervals:
        """The time in which the device's process was in a call of this cause."""
        return self.time_of((self.cause == CAUSES.index(cause)) & (self.process == device.process))


def claims(gap_ns: np.ndarray, held_up_ns: np.ndarray) -> np.ndarray:
    """By gap: how much of it is explained by the time that the host was held up (before the launch that ended it). The
    gaps use this time in turn: what one leaves, later ones can use."""
    balance = np.cumsum(held_up_ns - gap_ns)
    left_ns = balance - np.minimum(np.minimum.accumulate(balance), 0)  # after each gap; never below zero
    return np.append(0, left_ns[:-1]) + held_up_ns - left_ns


class Idle:
    """The gaps between the activities of all devices. Arrays are by activity, for the gap that it ended."""

    def __init__(self, scope: Scope, calls: HostCalls):
        """Raises NotConserved unless the causes add up to the gaps."""
        self.scope, self.calls = scope, calls
        self.ns_by_cause: dict[str, np.ndarray] = {}  # causes of no gap are left out
        # By cause of CAUSES, the sum of what would be gone if its calls took no time: what they claim, and the pauses
        # and launches after them, which a host that is further ahead hides.
        self.avoidable_ns = dict.fromkeys(CAUSES, 0)
        # The idle time whose activity was launched in time, or before which the host only launched since the last late
        # launch, even if an earlier call is the cause.
        self.unblocked_ns = np.zeros(len(scope.activities), np.int64)
        for device in scope.devices:
            self._add(device)

    def by_activity(self, *causes: str) -> np.ndarray:
        """The idle time of these causes in ns, by the activity that ended it."""
        none_ns = np.zeros(len(self.scope.activities), np.int64)
        return sum((ns for cause, ns in self.ns_by_cause.items() if cause in causes), start=none_ns)

    def at_edges_ns(self, cause: str) -> int:
        """The idle time before the first activity of a device, if a call of this cause is in it, and that after the
        last activity likewise; summed over devices."""
        total_ns = 0
        for device in self.scope.devices if cause in CAUSES else ():
            calls = self.calls.holding_up(device, cause)
            for first_ns, last_ns in ((device.first_ns, device.start_ns[0]), (device.end_ns.max(), device.last_ns)):
                total_ns += int(last_ns - first_ns) if covered_ns(calls, int(first_ns), int(last_ns)) else 0
        return total_ns

    def _add(self, device: Device) -> None:
        between, row = device.gaps
        gap_ns, launch_ns = between.lengths_ns, self.scope.launch_ns[row]
        # From the call to the start of a kernel that finds the GPU idle: on an H200 at least 5.4 µs, the median 7.3 µs.
        latency_ns = 6_000
        capture, in_evaluation = self.scope.profile.capture, self.scope.data_waits(device, in_evaluation=True)
        in_profiler_ns, in_functions_ns, in_evaluation_ns = (
            covered_ns(times, between.start_ns, between.end_ns)
            for times in (union(*capture.overhead), union(*capture.host_functions[:2]), in_evaluation)
        )
        rest_ns = gap_ns - in_profiler_ns
        # A gap that a function fills mostly is its wait, with the time until it starts and until its stream goes on.
        in_functions_ns = np.where(2 * in_functions_ns > gap_ns, rest_ns, np.minimum(in_functions_ns, rest_ns))
        in_evaluation_ns = np.minimum(in_evaluation_ns, rest_ns - in_functions_ns)
        parts = {PROFILER: in_profiler_ns, FUNCTION: in_functions_ns, EVALUATION: in_evaluation_ns}
        rest_ns = rest_ns - in_functions_ns - in_evaluation_ns
        has_launch = self.scope.launch_row[row] != NONE
        is_late = has_launch & (launch_ns + latency_ns > between.start_ns)
        left_ns = np.where(is_late, rest_ns, 0)  # what no cause has claimed yet
        parts |= {UNKNOWN: np.where(has_launch, 0, rest_ns), GPU: np.where(has_launch & ~is_late, rest_ns, 0)}
        parts[HOST] = np.minimum(left_ns, self._paused_ns(device, between, launch_ns))
        left_ns = left_ns - parts[HOST]
        only_launches = parts[HOST] == 0
        late = np.flatnonzero(is_late)
        late = late[np.argsort(launch_ns[late], kind="stable")]
        until_ns = launch_ns[late]  # of the late launch that ended each of these gaps
        # The late launch before; for the first, the start of the device's first activity, or itself if it is earlier.
        since_ns = np.append(np.minimum(device.start_ns[:1], until_ns[:1]), until_ns[:-1])
        for cause in CAUSES if len(late) else ():
            calls = self.calls.holding_up(device, cause)
            if not len(calls):
                continue
            held_up_ns = covered_ns(calls, since_ns, until_ns)
            parts[cause] = np.zeros_like(gap_ns)
            parts[cause][late] = claims(left_ns[late], held_up_ns)
            left_ns = left_ns - parts[cause]
            only_launches[late] &= held_up_ns == 0
            # A window opens when the GPU is done, so calls that precede all activities found nothing to wait for: they
            # count with the mean time that a later step spends in them.
            if covered_ns(calls, device.first_ns, int(device.start_ns[0])):
                held_up_ns[0] += held_up_ns.sum() // max(len(self.scope.step_ranges) - 1, 1)
            self.avoidable_ns[cause] += int(claims(gap_ns[late], held_up_ns).sum())
        parts[LAUNCHING] = left_ns
        if not (sum(parts.values()) == gap_ns).all():
            raise NotConserved(f"the causes of the gaps of device {device.number} are not the gaps")
        for cause, ns in parts.items():
            if ns.any():
                self.ns_by_cause.setdefault(cause, np.zeros_like(self.unblocked_ns))[row] = ns
        self.unblocked_ns[row] = np.where(only_launches, rest_ns - parts[HOST] - parts[UNKNOWN], parts[GPU])

    def _paused_ns(self, device: Device, between: Intervals, launch_ns: np.ndarray) -> np.ndarray:
        """By gap: the time of long pauses in which the device's process made no API call, and of the launch after."""
        busy = self.calls.time_of(self.calls.process == device.process)
        # long: 70 times the 14 us that the host takes per launch in eager PyTorch
        pauses = gaps(busy, device.first_ns, device.last_ns, least_ns=1_000_000)
        _, gap, start_ns, end_ns = overlapping_pairs(pauses.start_ns, pauses.end_ns, between)
        paused_ns = np.zeros(len(between), np.int64)
        np.add.at(paused_ns, gap, end_ns - start_ns)
        return np.where(paused_ns > 0, paused_ns + between.end_ns - launch_ns, 0)
