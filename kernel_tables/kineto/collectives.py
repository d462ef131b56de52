"""Collectives of Gloo: PyTorch's profiler shows each as a range on a thread of Gloo's own, for the time that it ran,
and the call that started it, `c10d::allreduce_`, as an operator on the thread that asked for it."""

from collections import defaultdict, deque

import numpy as np

from kernel_tables.kineto.trace import ANNOTATION, OPERATOR, TorchTrace

PREFIX, CALL_PREFIX = "gloo:", "c10d::"
RUN_AS = {  # what Gloo runs for a call on one tensor: it has no reduce-scatter, reduces all, and keeps its part
    "allgatherbase": "allgather",
    "reducescatterbase": "allreduce",
}


def launched_collectives(trace: TorchTrace) -> list[tuple[int, int | None]]:
    """(row of its annotation, row of the operator that started it) of every collective, by start; None for a call
    before the first event.

    Gloo takes its work in the order of the calls: a collective is of the earliest call of its kind that is not taken
    yet and came before it.
    """
    calls: dict[str, deque[int]] = defaultdict(deque)
    names = trace.names_of(OPERATOR)
    for row in _named_in_order(trace, OPERATOR, names, CALL_PREFIX):
        calls[_kind(names[row].removeprefix(CALL_PREFIX))].append(row)
    launched = []
    names = trace.names_of(ANNOTATION)
    for row in _named_in_order(trace, ANNOTATION, names, PREFIX):
        waiting = calls[_kind(names[row].removeprefix(PREFIX))]
        came_before = waiting and trace[OPERATOR]["start"][waiting[0]] <= trace[ANNOTATION]["start"][row]
        launched.append((row, waiting.popleft() if came_before else None))
    return launched


def _named_in_order(trace: TorchTrace, kind: str, names: list[str], prefix: str) -> list[int]:
    """The rows whose name begins so, by start."""
    rows = np.array([row for row, name in enumerate(names) if name.startswith(prefix)], np.int64)
    return rows[np.lexsort((trace[kind]["order"][rows], trace[kind]["start"][rows]))].tolist()


def _kind(name: str) -> str:
    kind = name.replace("_", "")
    return RUN_AS.get(kind, kind)
