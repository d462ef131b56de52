"""The recorder on a CPU: the memory events of PyTorch's profiler, which have the address of every allocation."""

from bisect import bisect_left
from typing import Any

from torch import _C
from torch.autograd.profiler import profile, record_function

from cs336_model.program.memory.history import AllocatorEvent, AllocatorRecording, RecordedRange

CANNOT = [
    "a processor's allocator keeps nothing in reserve and rounds nothing: requested, allocated and reserved are one",
    "what libraries (oneDNN, OpenMP, the C++ runtime) allocate by themselves is not seen, workspaces among it",
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
    events, ranges, times, peak = [], [], [], 0
    waiting = [(node, None, None) for node in sorted(roots, key=_started, reverse=True)]
    while waiting:
        node, inside, operator = waiting.pop()
        kind, fields = node.typed
        if kind == ALLOCATION and fields.device.type == "cpu":
            size, time_us = fields.alloc_size, node.start_time_ns / 1e3
            events.append(AllocatorEvent(size > 0, fields.ptr, abs(size), time_us, inside, operator))
            times.append(node.start_time_ns)
            peak = max(peak, fields.total_allocated)
        elif kind == OPERATION and fields.scope == _C._profiler.RecordScope.USER_SCOPE:
            ranges.append((node, inside))
            inside, operator = len(ranges) - 1, None
        elif kind == OPERATION:
            operator = operator or node.name
        waiting += [(child, inside, operator) for child in sorted(node.children, key=_started, reverse=True)]
    order = sorted(range(len(events)), key=times.__getitem__)
    times = [times[number] for number in order]
    opened = [
        RecordedRange(node.name, inside, bisect_left(times, node.start_time_ns), bisect_left(times, node.end_time_ns))
        for node, inside in ranges
    ]
    return [events[number] for number in order], opened, peak


def _started(node: Any) -> int:
    return node.start_time_ns
