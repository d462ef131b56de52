"""The recorder on a GPU: the history of PyTorch's caching allocator, and its counters at both ends of every range.

The backward pass runs in its own thread, so the range of an allocation does not follow from its thread. It follows from
the number of allocations and releases that the allocator has counted when a range or an operation begins and ends.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from cs336_model.program.memory.history import AllocatorEvent, AllocatorRecording, FailedAllocation, RecordedRange
from cs336_model.program.memory.operations import published_path
from cs336_model.program.out_of_memory import OutOfMemoryError
from range_marks.marker import Emitter

ALLOCATES_BY_ACTION = {"alloc": True, "free_completed": False}  # by the action of trace entries that are events
NOT_RECORDED = [
    "memory of NCCL and of the CUDA context, which the allocator does not see; the driver's number includes it"
]


class AllocatorRecorder:
    """Records until `finish` is called."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._ranges: list[RecordedRange] = []
        self._open_numbers: list[int] = []  # of the open ranges of all threads
        self._open_in_thread = _OpenRanges()
        self._operations: list[RecordedOperation] = []
        self.emitter = Emitter(self._push, self._pop)
        torch.cuda.init()
        self._earlier_events = self._event_count()
        torch.cuda.memory._record_memory_history(stacks="python", context="alloc")
        self._snapshot: dict[str, Any] = {}

    @contextmanager
    def operation(self, name: str, line: str | None) -> Iterator[None]:
        """A with block whose allocations belong to an operation that this line calls."""
        first_event = self._next_event()
        try:
            yield
        finally:
            event_after = self._next_event()
            if event_after > first_event:
                self._operations.append(RecordedOperation(first_event, event_after, name, line))

    def _push(self, name: str) -> None:
        number = len(self._ranges)
        enclosing = self._open_numbers[-1] if self._open_numbers else None
        self._open_numbers.append(number)
        self._open_in_thread.numbers.append(number)
        self._ranges.append(RecordedRange(name, enclosing, self._next_event()))

    def _pop(self) -> None:
        number = self._open_in_thread.numbers.pop()
        self._open_numbers.remove(number)
        self._ranges[number].event_after = self._next_event()
        # if memory runs out inside the range, this is called while the exception leaves it
        self._ranges[number].failed = isinstance(sys.exc_info()[1], OutOfMemoryError)

    def finish(self, held: dict[str, list[int]]) -> AllocatorRecording:
        """Everything since the beginning; `held` has the addresses of storages by category."""
        stats = torch.cuda.memory_stats(self._device)
        free_bytes, total_bytes = torch.cuda.mem_get_info(self._device)
        self._snapshot = torch.cuda.memory._snapshot(self._device)
        torch.cuda.memory._record_memory_history(None)
        trace = self._snapshot["device_traces"][self._device.index]
        peaks = {f"{name}_peak": stats[f"{name}_bytes.all.peak"] for name in ("requested", "allocated", "reserved")}
        events = with_operations(events_of_trace(trace), self._operations)
        return AllocatorRecording(
            events, self._ranges, held, peaks | {"driver_used": total_bytes - free_bytes}, NOT_RECORDED,
            last_failed_allocation(trace, self._ranges),
        )  # fmt: skip

    def stop(self) -> None:
        """Does nothing: the allocator's history may end with the process."""

    def snapshot(self) -> dict[str, Any]:
        """The snapshot for pytorch.org/memory_viz, as it may be published."""
        return publishable_snapshot(self._snapshot)

    def _next_event(self) -> int:
        """The number of the next event in this recording."""
        return self._event_count() - self._earlier_events

    def _event_count(self) -> int:
        """Allocations and completed releases since the process began."""
        stats = torch.cuda.memory_stats_as_nested_dict(self._device)
        # for releases, "allocation" counts requests, "active" what is completed
        return stats["allocation"]["all"]["allocated"] + stats["active"]["all"]["freed"]


class RecordedOperation(NamedTuple):
    """The events of an operation, and the line of Python that called it."""

    first_event: int
    event_after: int
    name: str
    line: str | None


class _OpenRanges(threading.local):
    """The numbers of the ranges that the calling thread opened and has not closed."""

    def __init__(self) -> None:
        self.numbers: list[int] = []


def with_operations(events: list[AllocatorEvent], operations: list[RecordedOperation]) -> list[AllocatorEvent]:
    """The events with the operations during which they occurred."""
    result = list(events)
    for first, after, name, line in operations:
        result[first:after] = [event._replace(operator=name, line=line) for event in result[first:after]]
    return result


def events_of_trace(entries: list[dict[str, Any]]) -> list[AllocatorEvent]:
    """The allocations and completed releases among the entries of an allocator's trace; a release counts when it is
    completed, as in `requested_bytes`."""
    return [
        AllocatorEvent(ALLOCATES_BY_ACTION[entry["action"]], entry["addr"], entry["size"], entry["time_us"])
        for entry in entries
        if entry["action"] in ALLOCATES_BY_ACTION
    ]


def last_failed_allocation(entries: list[dict[str, Any]], ranges: list[RecordedRange]) -> FailedAllocation | None:
    """The last failed request in an allocator's trace; None if there is none. Its event is the number of events before
    it: later ones free memory while the error passes through the program."""
    index = next((index for index in reversed(range(len(entries))) if entries[index]["action"] == "oom"), None)
    if index is None:
        return None
    earlier_events = sum(entry["action"] in ALLOCATES_BY_ACTION for entry in entries[:index])
    failed_ranges = [number for number, span in enumerate(ranges) if span.failed]
    request, failed_range = entries[index], failed_ranges[-1] if failed_ranges else None
    return FailedAllocation(earlier_events, request["size"], request.get("device_free"), failed_range)


# what pytorch.org/memory_viz draws
FRAME_KEYS = ("name", "line")
ENTRY_KEYS = ("action", "addr", "size", "stream", "time_us", "device_free", "pool_id", "segment_pool_id", "version")
SEGMENT_KEYS = (
    "device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream", "segment_type",
    "segment_pool_id", "is_expandable",
)  # fmt: skip
BLOCK_KEYS = ("address", "size", "requested_size", "state")


def publishable_snapshot(snapshot: dict[str, Any]) -> dict[str, Any]:
    """A copy with only the keys that pytorch.org/memory_viz draws, and without folders of this machine."""
    return {
        "segments": [
            _selected(SEGMENT_KEYS, segment)
            | {"blocks": [_with_frames(BLOCK_KEYS, block) for block in segment["blocks"]]}
            for segment in snapshot["segments"]
        ],
        "device_traces": [[_with_frames(ENTRY_KEYS, entry) for entry in trace] for trace in snapshot["device_traces"]],
    }


def _with_frames(keys: tuple[str, ...], entry: dict[str, Any]) -> dict[str, Any]:
    frames = [
        _selected(FRAME_KEYS, frame) | {"filename": published_path(frame["filename"])}
        for frame in entry.get("frames", ())
    ]
    return _selected(keys, entry) | {"frames": frames}


def _selected(keys: tuple[str, ...], values: dict[str, Any]) -> dict[str, Any]:
    return {key: values[key] for key in keys if key in values}
