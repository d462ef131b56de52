"""The recorder on a CPU: the memory events of PyTorch's profiler, which have the address of every allocation."""

from bisect import bisect_left
from operator import itemgetter
from typing import Any

from torch import _C
from torch._C._profiler import _RecordFunctionFast  # unlike record_function, it is not an operator itself
from torch.autograd.profiler import profile

from cs336_model.program.memory.history import AllocatorEvent, AllocatorRecording, RecordedRange
from range_marks.marker import Emitter

# prefixes of names in the profiler's tree: of a range, and of an operation with its line
RANGE, OPERATION = "range of the program: ", "operation of the program: "

NOT_RECORDED = [
    "a processor's allocator keeps nothing in reserve and rounds nothing: requested, allocated and reserved are one",
    "what libraries (oneDNN, OpenMP, the C++ runtime) allocate themselves, including workspaces, is not seen",
    "what a thread of Gloo releases counts as live until its memory is used again",
    "there is no snapshot for pytorch.org/memory_viz",
]
ALLOCATION = _C._profiler._EventType.Allocation


class CpuRecorder:
    """Records until `finish` or `stop` is called; if neither is, the process crashes when it exits."""

    def __init__(self) -> None:
        self._open_ranges: list[_RecordFunctionFast] = []
        self.emitter = Emitter(self._push, lambda: self._open_ranges.pop().__exit__(None, None, None))
        self._profile = profile(use_kineto=True, profile_memory=True)
        self._profile.__enter__()

    def operation(self, name: str, line: str | None) -> _RecordFunctionFast:
        """A with block whose allocations belong to an operation that this line calls."""
        return _RecordFunctionFast(f"{OPERATION}{name} {line or ''}")

    def _push(self, name: str) -> None:  # on a processor, one thread does everything
        self._open_ranges.append(_RecordFunctionFast(RANGE + name))
        self._open_ranges[-1].__enter__()

    def finish(self, held: dict[str, list[int]]) -> AllocatorRecording:
        """Everything since the beginning; `held` has the addresses of storages by category."""
        self.stop()
        events, ranges, peak_bytes = history_of_tree(self._profile.kineto_results.experimental_event_tree())
        counters = dict.fromkeys(("allocated_peak", "reserved_peak", "driver_used")) | {"requested_peak": peak_bytes}
        return AllocatorRecording(events, ranges, held, counters, NOT_RECORDED)

    def stop(self) -> None:
        """Stops without a result."""
        self._profile.__exit__(None, None, None)

    def snapshot(self) -> None:
        """None: a CPU has no snapshot."""


def history_of_tree(roots: list[Any]) -> tuple[list[AllocatorEvent], list[RecordedRange], int]:
    """Events and ranges of the profiler's tree, and the peak bytes of live tensors. The profiler's totals also count
    what an earlier profile of this process left, so the bytes before the first event are subtracted."""
    events, range_nodes = [], []
    totals = []  # for each event its time, the bytes of all live tensors after it, and the bytes that it added
    stack = [(node, (None, None)) for node in sorted(roots, key=_start_ns, reverse=True)]
    while stack:
        node, operation = stack.pop()
        kind, fields = node.typed
        if kind == ALLOCATION and fields.device.type == "cpu":
            added_bytes, time_us = fields.alloc_size, node.start_time_ns / 1e3  # a release adds a negative number
            event = AllocatorEvent(added_bytes > 0, fields.ptr, abs(added_bytes), time_us, *operation)
            events.append((node.start_time_ns, event))
            totals.append((node.start_time_ns, fields.total_allocated, added_bytes))
        elif node.name.startswith(OPERATION):
            name, _, line = node.name.removeprefix(OPERATION).partition(" ")
            operation = name, line or None
        elif node.name.startswith(RANGE):
            range_nodes.append(node)
        stack += [(child, operation) for child in sorted(node.children, key=_start_ns, reverse=True)]
    events = with_unseen_releases(sorted(events, key=itemgetter(0)))
    event_times_ns = [time_ns for time_ns, _ in events]
    _, bytes_after_first, first_added_bytes = min(totals, default=(0, 0, 0))  # of the first event
    bytes_before_first = bytes_after_first - first_added_bytes
    peak_bytes = max((total for _, total, _ in totals), default=0) - bytes_before_first
    ranges = _nested_ranges(sorted(range_nodes, key=_start_ns), event_times_ns)
    return [event for _, event in events], ranges, peak_bytes


def _nested_ranges(nodes: list[Any], event_times_ns: list[int]) -> list[RecordedRange]:
    """The ranges of these nodes, which are in the order of their starts. A range of the backward pass begins inside one
    node of autograd and ends inside another, so what it contains follows from its times, not from the profiler's tree.
    """
    ranges, open_numbers = [], []
    for number, node in enumerate(nodes):
        while open_numbers and nodes[open_numbers[-1]].end_time_ns <= node.start_time_ns:
            open_numbers.pop()
        enclosing = open_numbers[-1] if open_numbers else None
        first, after = (bisect_left(event_times_ns, time_ns) for time_ns in (node.start_time_ns, node.end_time_ns))
        ranges.append(RecordedRange(node.name.removeprefix(RANGE), enclosing, first, after))
        open_numbers.append(number)
    return ranges


def with_unseen_releases(events: list[tuple[int, AllocatorEvent]]) -> list[tuple[int, AllocatorEvent]]:
    """The timed events with the releases that the profiler did not see: a thread of Gloo may be the last to use a
    tensor. Such a release is added before the next allocation at its address."""
    complete, live = [], {}  # `live` has allocations by address
    for time_ns, event in events:
        if event.allocates and (unreleased := live.pop(event.address, None)):
            complete.append((time_ns, unreleased._replace(allocates=False)))
        complete.append((time_ns, event))
        if event.allocates:
            live[event.address] = event
        else:
            live.pop(event.address, None)
    return complete


def _start_ns(node: Any) -> int:
    return node.start_time_ns
