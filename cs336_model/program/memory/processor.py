"""The recorder on a CPU: the memory events of PyTorch's profiler, which have the address of every allocation."""

from bisect import bisect_left
from operator import itemgetter
from typing import Any

from torch import _C
from torch.autograd.profiler import profile, record_function

from cs336_model.program.memory.history import AllocatorEvent, AllocatorRecording, RecordedRange

CANNOT = [
    "a processor's allocator keeps nothing in reserve and rounds nothing: requested, allocated and reserved are one",
    "what libraries (oneDNN, OpenMP, the C++ runtime) allocate by themselves is not seen, workspaces among it",
    "what a thread of Gloo releases counts as live until its memory is used again",
    "there is no snapshot for pytorch.org/memory_viz",
]
ALLOCATION, OPERATION = _C._profiler._EventType.Allocation, _C._profiler._EventType.TorchOp


class ProcessorMemory:
    """Records until `ended` is called; its ranges are those that record_function opens."""

    emitter = record_function  # without marking the backward pass, which would allocate

    def __init__(self) -> None:
        self._profile = profile(use_kineto=True, profile_memory=True)
        self._profile.__enter__()

    def ended(self, held: dict[str, list[int]]) -> AllocatorRecording:
        """Everything since the beginning."""
        self._profile.__exit__(None, None, None)
        events, ranges, peak = history_of_tree(self._profile.kineto_results.experimental_event_tree())
        counters = dict.fromkeys(("allocated_peak", "reserved_peak", "driver_used")) | {"requested_peak": peak}
        return AllocatorRecording(events, ranges, held, counters, CANNOT)

    def snapshot(self) -> None:
        """None: a CPU has no snapshot."""


def history_of_tree(roots: list[Any]) -> tuple[list[AllocatorEvent], list[RecordedRange], int]:
    """Events and ranges of the profiler's tree, and the peak of its allocator."""
    events, ranges, peak = [], [], 0
    waiting = [(node, None, None) for node in sorted(roots, key=_started, reverse=True)]
    while waiting:
        node, inside, operator = waiting.pop()
        kind, fields = node.typed
        if kind == ALLOCATION and fields.device.type == "cpu":
            size, time_us = fields.alloc_size, node.start_time_ns / 1e3
            event = AllocatorEvent(size > 0, fields.ptr, abs(size), time_us, inside, operator)
            events.append((node.start_time_ns, event))
            peak = max(peak, fields.total_allocated)
        elif kind == OPERATION and fields.scope == _C._profiler.RecordScope.USER_SCOPE:
            ranges.append((node, inside))
            inside, operator = len(ranges) - 1, None
        elif kind == OPERATION:
            operator = operator or node.name
        waiting += [(child, inside, operator) for child in sorted(node.children, key=_started, reverse=True)]
    events = with_unseen_releases(sorted(events, key=itemgetter(0)))
    times = [time_ns for time_ns, _ in events]
    opened = [
        RecordedRange(node.name, inside, bisect_left(times, node.start_time_ns), bisect_left(times, node.end_time_ns))
        for node, inside in ranges
    ]
    return [event for _, event in events], opened, peak


def with_unseen_releases(events: list[tuple[int, AllocatorEvent]]) -> list[tuple[int, AllocatorEvent]]:
    """The timed events with a release before each allocation where one is live: a thread of Gloo may be the last to use
    a tensor, and the profiler sees no release there."""
    complete, live = [], {}
    for time_ns, event in events:
        if event.allocates and (unreleased := live.pop(event.address, None)):
            complete.append((time_ns, unreleased._replace(allocates=False)))
        complete.append((time_ns, event))
        if event.allocates:
            live[event.address] = event
        else:
            live.pop(event.address, None)
    return complete


def _started(node: Any) -> int:
    return node.start_time_ns
