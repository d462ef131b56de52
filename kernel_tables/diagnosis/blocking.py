"""The API calls that held up the host, because it waited, allocated or copied, by cause."""

from functools import cached_property

import numpy as np

from kernel_tables.attribution.activities import KINDS
from kernel_tables.attribution.arrays import blocks
from kernel_tables.diagnosis.calls import ALLOCATION, COPY, FREEING, LAUNCH, OTHER, WAIT
from kernel_tables.diagnosis.scope import NO_STEP, Scope
from kernel_tables.reading.schema import MISSING

# CUDA copies up to this from pageable memory without waiting ("API synchronization behavior" in the manual of the CUDA
# runtime); what .item() reads is smaller still, and is a wait for a value, not a transfer.
SMALL_COPY_BYTES = 64 * 1024
HOST_COPIES = (1, 2)  # ENUM_CUDA_MEMCPY_OPER: host to device, device to host
PAGEABLE = 0  # ENUM_CUDA_MEM_KIND

SYNC_IN_STEP, SYNC, ALLOCATION_IN_STEP, ALLOCATED, PAGEABLE_COPY, COPY_IN_STEP, COPIED = CAUSES = (
    "sync_in_step", "idle_sync", "allocation_in_step", "idle_allocation", "pageable_copy", "copy_in_step", "idle_copy",
)  # fmt: skip


class Blocking:
    """The causes (indices in CAUSES) of copies between host and device, and of calls that hold up the host.

    A call is within a step if the step launches more afterwards; the call that ends a step is not.
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
        details, kind = scope.trace.capture.copies(), self._copy_kind[rows]
        pageable = (details["source"] == PAGEABLE) | (details["target"] == PAGEABLE)
        in_step = self._launches_more(activities.launch_ns_of(rows), scope.step[rows])
        small = details["bytes"] <= SMALL_COPY_BYTES
        causes = np.select(
            [small & in_step, small, pageable, in_step],
            [CAUSES.index(name) for name in (SYNC_IN_STEP, SYNC, PAGEABLE_COPY, COPY_IN_STEP)],
            CAUSES.index(COPIED),
        )
        cause[rows] = np.where(np.isin(kind, HOST_COPIES), causes, -1)
        return cause

    @cached_property
    def has_memory_kinds(self) -> bool:
        """Whether the capture has the sizes of copies and their kinds of memory."""
        details = self._scope.trace.capture.copies()
        return not any((details[name] == MISSING).all() for name in details if len(details[name]))

    @cached_property
    def call_cause(self) -> np.ndarray:
        """By call: the index in CAUSES of why it holds up the host, -1 if it does not."""
        calls = self._scope.calls
        cause = np.full(len(calls), -1, np.int8)
        rows = np.flatnonzero((calls.kind != LAUNCH) & (calls.kind != OTHER))
        kind, in_step = calls.kind[rows], self._launches_more(calls.start_ns[rows], self._step_of_calls(rows))
        for kinds, is_inside, inside, outside in (
            ((WAIT, COPY), in_step, SYNC_IN_STEP, SYNC),
            ((ALLOCATION, FREEING), in_step & ~self._freed_between(rows, in_step), ALLOCATION_IN_STEP, ALLOCATED),
        ):
            of_kind = np.isin(kind, kinds)
            causes = np.where(is_inside, CAUSES.index(inside), CAUSES.index(outside))
            cause[rows[of_kind]] = causes[of_kind]
        activities, copy_cause = self._scope.activities, self.copy_cause
        copied = np.flatnonzero((copy_cause >= 0) & activities.has_launch)
        by_call = np.full(len(calls) + 1, -1, np.int8)  # the last entry is for calls without a previous one
        by_call[activities.launch_row[copied]] = copy_cause[copied]
        waits = np.flatnonzero(calls.kind == WAIT)
        before = by_call[calls.previous(waits)]
        cause[waits[before >= 0]] = before[before >= 0]
        return np.where(by_call[:-1] >= 0, by_call[:-1], cause)

    def _freed_between(self, rows: np.ndarray, in_step: np.ndarray) -> np.ndarray:
        """Whether the process of each of these calls frees memory only between steps. Then its steps allocate again
        what was freed between them."""
        process, freeing = self._scope.calls.process[rows], self._scope.calls.kind[rows] == FREEING
        between, inside = (np.unique(process[freeing & mask]) for mask in (~in_step, in_step))
        return np.isin(process, np.setdiff1d(between, inside))

    @cached_property
    def _copy_kind(self) -> np.ndarray:
        """By activity: the kind of a copy between host and device, by its name; 0 for other activities."""
        names = self._scope.activities.names
        kinds = [1 if "Host-to-Device" in n else 2 if "Device-to-Host" in n else 0 for n in names]
        return np.array(kinds, np.int8)[self._scope.activities.name]

    def _step_of_calls(self, rows: np.ndarray) -> np.ndarray:
        """The number of the step of its process in which each of these calls began; NO_STEP outside."""
        scope, ranges = self._scope, self._scope.trace.range_arrays
        start_ns, of_process = scope.calls.start_ns[rows], scope.calls.process[rows]
        step = np.full(len(rows), NO_STEP, np.int32)
        for process in np.unique(ranges.process[scope.steps]).tolist():
            numbers = np.flatnonzero(ranges.process[scope.steps] == process)
            starts, ends = ranges.start_ns[scope.steps][numbers], ranges.end_ns[scope.steps][numbers]
            place = np.searchsorted(starts, start_ns, "right") - 1
            inside = (place >= 0) & (start_ns < ends[place]) & (of_process == process)
            step[inside] = numbers[place[inside]]
        return step

    @cached_property
    def _last_launch_ns(self) -> np.ndarray:
        """By step: the time of its last launch."""
        last = np.full(len(self._scope.steps) + 1, -1)
        for block in blocks(len(self._scope.step)):
            np.maximum.at(last, self._scope.step[block], self._scope.activities.launch_ns_of(block))
        return last

    def _launches_more(self, times_ns: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Whether the `step` of each time launches more afterwards."""
        return (step != NO_STEP) & (self._last_launch_ns[step] > times_ns)
