"""The API calls that held up the host, because it waited, allocated or copied, by cause."""

import re
from functools import cached_property

import numpy as np

from kernel_tables.attribution.activities import KINDS
from kernel_tables.attribution.arrays import blocks
from kernel_tables.diagnosis.calls import COPY, FREEING, LAUNCH, OTHER, WAIT
from kernel_tables.diagnosis.scope import NO_STEP, Scope
from kernel_tables.reading.schema import MISSING

# Up to this size, CUDA copies from pageable memory without waiting ("API synchronization behavior" in the manual of the
# CUDA runtime). What .item() reads is smaller still, so a small copy counts as a wait for a value, not as a transfer.
SMALL_COPY_BYTES = 64 * 1024
HOST_COPY = re.compile("Host-to-Device|Device-to-Host")
PAGEABLE = 0  # ENUM_CUDA_MEM_KIND

# Causes of idle time, and the rules that report them; those that begin with IDLE_ are outside of steps.
ALLOCATIONS = ALLOCATION_IN_STEP, IDLE_ALLOCATION = ("allocation_in_step", "idle_allocation")
COPIES = PAGEABLE_COPY, COPY_IN_STEP, IDLE_COPY = ("pageable_copy", "copy_in_step", "idle_copy")
SYNCS = SYNC_IN_STEP, IDLE_SYNC = ("sync_in_step", "idle_sync")
CAUSES = (*ALLOCATIONS, *COPIES, *SYNCS)  # idle time is assigned to the first that applies


class Blocking:
    """The causes (indices in CAUSES) of copies between host and device, and of calls that hold up the host.

    A call or copy counts as in a step only if the step launches more afterwards; so the call with which a step ends
    does not.
    """

    def __init__(self, scope: Scope):
        self._scope = scope

    @cached_property
    def copy_cause(self) -> np.ndarray:
        """By activity: the index in CAUSES of a copy between host and device, -1 for other activities."""
        activities, scope = self._scope.activities, self._scope
        cause = np.full(len(activities), -1, np.int8)
        rows = np.flatnonzero(activities.kind == KINDS.index("memcpy"))
        if not len(rows):
            return cause
        copies = scope.trace.capture.copies()  # in the order of `rows`
        is_pageable = (copies["source"] == PAGEABLE) | (copies["target"] == PAGEABLE)
        in_step = self._launches_more(activities.launch_ns_of(rows), scope.step_by_activity[rows])
        is_small = copies["bytes"] <= SMALL_COPY_BYTES
        causes = np.select(
            [is_small & in_step, is_small, is_pageable, in_step],
            [CAUSES.index(name) for name in (SYNC_IN_STEP, IDLE_SYNC, PAGEABLE_COPY, COPY_IN_STEP)],
            CAUSES.index(IDLE_COPY),
        )
        is_host_copy = np.array([bool(HOST_COPY.search(name)) for name in activities.names])
        cause[rows] = np.where(is_host_copy[activities.name[rows]], causes, -1)
        return cause

    @cached_property
    def has_memory_kinds(self) -> bool:
        """Whether the capture has the sizes of copies and their kinds of memory."""
        copies = self._scope.trace.capture.copies()
        return not any(len(column) and (column == MISSING).all() for column in copies.values())

    @cached_property
    def call_cause(self) -> np.ndarray:
        """By call: the index in CAUSES of why it holds up the host, -1 if it does not."""
        calls = self._scope.calls
        cause = np.full(len(calls), -1, np.int8)
        rows = np.flatnonzero((calls.kind != LAUNCH) & (calls.kind != OTHER))
        is_wait = np.isin(calls.kind[rows], (WAIT, COPY))  # the others allocate or free
        in_step = self._launches_more(calls.start_ns[rows], self._step_of_calls(rows))
        cause[rows] = np.select(
            [is_wait & in_step, is_wait, in_step & ~self._frees_between_steps(rows, in_step)],
            [CAUSES.index(name) for name in (SYNC_IN_STEP, IDLE_SYNC, ALLOCATION_IN_STEP)],
            CAUSES.index(IDLE_ALLOCATION),
        )
        activities, copy_cause = self._scope.activities, self.copy_cause
        copies = np.flatnonzero((copy_cause >= 0) & activities.has_launch)
        cause_as_copy = np.full(len(calls) + 1, -1, np.int8)  # the last entry is for calls without a previous one
        cause_as_copy[activities.launch_row[copies]] = copy_cause[copies]
        waits = np.flatnonzero(calls.kind == WAIT)
        previous_cause = cause_as_copy[calls.previous(waits)]  # a wait after a copy is a part of it
        is_after_copy = previous_cause >= 0
        cause[waits[is_after_copy]] = previous_cause[is_after_copy]
        return np.where(cause_as_copy[:-1] >= 0, cause_as_copy[:-1], cause)

    def _frees_between_steps(self, rows: np.ndarray, in_step: np.ndarray) -> np.ndarray:
        """Whether the process of each of these calls frees memory only between steps. Then it is that freeing which
        makes its steps allocate, so their allocations count as outside of steps, too."""
        process, is_freeing = self._scope.calls.process[rows], self._scope.calls.kind[rows] == FREEING
        between, inside = (np.unique(process[is_freeing & mask]) for mask in (~in_step, in_step))
        return np.isin(process, np.setdiff1d(between, inside))

    def _step_of_calls(self, rows: np.ndarray) -> np.ndarray:
        """The index of the step of its process in which each of these calls began; NO_STEP outside."""
        scope, ranges = self._scope, self._scope.trace.range_arrays
        start_ns, call_process = scope.calls.start_ns[rows], scope.calls.process[rows]
        step = np.full(len(rows), NO_STEP, np.int32)
        for process in np.unique(ranges.process[scope.step_ranges]).tolist():
            own_steps = np.flatnonzero(ranges.process[scope.step_ranges] == process)
            starts, ends = ranges.start_ns[scope.step_ranges][own_steps], ranges.end_ns[scope.step_ranges][own_steps]
            position = np.searchsorted(starts, start_ns, "right") - 1  # in own_steps
            is_inside = (position >= 0) & (start_ns < ends[position]) & (call_process == process)
            step[is_inside] = own_steps[position[is_inside]]
        return step

    @cached_property
    def _last_launch_ns(self) -> np.ndarray:
        """By step: the time of its last launch."""
        last = np.full(len(self._scope.step_ranges) + 1, -1)  # the last entry is for activities of no step
        for block in blocks(len(self._scope.step_by_activity)):
            np.maximum.at(last, self._scope.step_by_activity[block], self._scope.activities.launch_ns_of(block))
        return last

    def _launches_more(self, times_ns: np.ndarray, step: np.ndarray) -> np.ndarray:
        """For each of `times_ns`: whether its step, an entry of `step`, launches more afterwards."""
        return (step != NO_STEP) & (self._last_launch_ns[step] > times_ns)
