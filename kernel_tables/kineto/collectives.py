"""Collectives of Gloo: PyTorch's profiler shows each as a range on a thread of Gloo's own, for the time that it ran,
and the call that started it, `c10d::allreduce_`, as an operator on the thread that asked for it."""

from collections import defaultdict, deque

from kernel_tables.kineto.trace import Event, Trace

PREFIX, CALL_PREFIX = "gloo:", "c10d::"


def is_collective(event: Event) -> bool:
    """Whether a range is the work of a thread of Gloo."""
    return event.category == "user_annotation" and event.name.startswith(PREFIX)


def launched_collectives(trace: Trace) -> list[tuple[Event, Event | None]]:
    """Every collective with the call that started it, by start; None for a call before the first event.

    Gloo takes its work in the order of the calls: a collective is of the earliest call of its kind that is not taken
    yet and came before it.
    """
    calls: dict[str, deque[Event]] = defaultdict(deque)
    for call in sorted(trace.of("cpu_op"), key=_start):
        if call.name.startswith(CALL_PREFIX):
            calls[_kind(call.name.removeprefix(CALL_PREFIX))].append(call)
    found = []
    for event in sorted(filter(is_collective, trace.of("user_annotation")), key=_start):
        waiting = calls[_kind(event.name.removeprefix(PREFIX))]
        came_before = waiting and waiting[0].start_ns <= event.start_ns
        found.append((event, waiting.popleft() if came_before else None))
    return found


def _kind(name: str) -> str:
    return name.replace("_", "")


def _start(event: Event) -> tuple[int, int]:
    return event.start_ns, event.sequence
