"""The ranges of a trace: annotations of the program, modules if the trace has stacks, else operators.

PyTorch's profiler shows each collective of Gloo as a range on a thread of Gloo's own, for the time that it ran, and
the call that started it, `c10d::allreduce_`, as an operator on the thread that asked for it.
"""

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernel_tables.kineto.backward import NODE, Range, backward_ranges, is_node
from kernel_tables.kineto.modules import ModuleCalls, by_thread, outermost
from kernel_tables.kineto.names import decoded
from kernel_tables.kineto.trace import ANNOTATION, FUNCTION, MODULE, OPERATOR, TorchTrace

GLOO_PREFIX, CALL_PREFIX = "gloo:", "c10d::"
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
    for row in _named_in_order(trace, ANNOTATION, names, GLOO_PREFIX):
        waiting = calls[_kind(names[row].removeprefix(GLOO_PREFIX))]
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


BACKWARD, STEP = "backward", "step"
PROFILER_STEP = re.compile(r"ProfilerStep#\d+")


def ranges_of(trace: TorchTrace, *, on_gpu: bool) -> list[Range]:
    """All ranges. Operators are ranges only `on_gpu`: on a processor they are the activities."""
    ranges = _with_steps(annotations(trace, with_gloo=on_gpu))
    calls = ModuleCalls(trace)
    ranges += _outside(_backward_passes(trace, calls), [row for row in ranges if row.name == BACKWARD])
    if len(calls):
        passes_end_ns = np.unique([row.end_ns for row in ranges])
        # Of ranges with equal times the earlier row is the outer one; inner ones end first.
        ranges += reversed(list(backward_ranges(trace, calls, passes_end_ns)))
        ranges += [_range_of_call(calls, call) for call in calls.ranges]
    elif on_gpu:
        ranges += _operators(trace)
    return ranges


def has_modules(trace: TorchTrace) -> bool:
    """Whether the trace has calls of modules."""
    return any(name.startswith(MODULE) for name in trace.names.values)


def annotations(trace: TorchTrace, *, with_gloo: bool) -> list[Range]:
    """The ranges that the program opened. On Gloo's threads they are collectives, activities of a processor."""
    names = [decoded(name) for name in trace.names_of(ANNOTATION)]
    columns = (trace[ANNOTATION][name].tolist() for name in ("start", "end", "thread"))
    rows = [Range(*times, name) for *times, name in zip(*columns, names, strict=True)]
    return [row for row in rows if with_gloo or not row.name.startswith(GLOO_PREFIX)]


def recorded_ranges(trace: TorchTrace, *, on_gpu: bool) -> list[Range]:
    """The ranges of a trace by the recorder. Without the numbered steps of a schedule of the program's own, which end
    elsewhere than the recorder's steps and would divide them."""
    rows = annotations(trace, with_gloo=on_gpu)
    has_steps = any(row.name == STEP for row in rows)
    return [row for row in rows if not (has_steps and PROFILER_STEP.fullmatch(row.name))]


def _with_steps(ranges: list[Range]) -> list[Range]:
    """The ranges; numbered steps of torch.profiler's schedule become `step`, unless a range has that name."""
    step = "ProfilerStep" if any(row.name == STEP for row in ranges) else STEP
    return [row._replace(name=step) if PROFILER_STEP.fullmatch(row.name) else row for row in ranges]


def _backward_passes(trace: TorchTrace, calls: ModuleCalls) -> list[Range]:
    """The calls of torch.autograd.backward; without stacks, the times in which a thread runs nodes in a row."""
    functions, names = trace[FUNCTION], trace.names.values
    rows = [row for row, name in enumerate(functions["name"].tolist()) if not names[name].startswith(MODULE)]
    if rows or len(calls):
        columns = (functions[name][rows].tolist() for name in ("start", "end", "thread"))
        return [Range(*row, BACKWARD) for row in zip(*columns, strict=True)]
    return list(_runs_of_nodes(trace))


def _runs_of_nodes(trace: TorchTrace) -> Iterator[Range]:
    """The times in which a thread runs nodes of autograd, without another operator or the end of an annotation."""
    operators, node = trace[OPERATOR], is_node(trace)
    annotation_ends_ns = np.unique(trace[ANNOTATION]["end"])
    for thread, rows in by_thread(operators["thread"]).items():
        rows = rows[outermost(*(operators[name][rows] for name in ("start", "end", "order")))]
        start, end, of_node = operators["start"][rows], operators["end"][rows], node[rows]
        ended = [np.searchsorted(annotation_ends_ns, times, "right") for times in (start, end)]
        follows = of_node[1:] & of_node[:-1] & (ended[0][1:] == ended[1][:-1])
        begins = np.flatnonzero(of_node & ~np.append(False, follows)[: len(rows)])
        ends = np.flatnonzero(of_node & ~np.append(follows, False)[: len(rows)])
        for begin_ns, end_ns in zip(start[begins].tolist(), end[ends].tolist(), strict=True):
            yield Range(begin_ns, end_ns, thread, BACKWARD)


def _outside(ranges: list[Range], outer: list[Range]) -> list[Range]:
    """Those of `ranges` that do not lie in one of `outer` in time."""
    if not ranges or not outer:
        return ranges
    start_ns, end_ns = (np.array(times) for times in zip(*sorted(row[:2] for row in outer), strict=True))
    latest_end_ns = np.maximum.accumulate(end_ns)
    before = np.searchsorted(start_ns, [row.start_ns for row in ranges], "right")
    is_inside = (before > 0) & (latest_end_ns[before - 1] >= [row.end_ns for row in ranges])
    return [row for row, inside in zip(ranges, is_inside.tolist(), strict=True) if not inside]


def _range_of_call(calls: ModuleCalls, call: int) -> Range:
    return Range(int(calls.start[call]), int(calls.end[call]), int(calls.thread[call]), calls.names[call])


def _operators(trace: TorchTrace) -> Iterator[Range]:
    """The outermost operators, with the shapes of their inputs."""
    operators, names = trace[OPERATOR], trace.names.values
    shapes = [_shapes(text) for text in trace.shapes.values]
    for thread, rows in by_thread(operators["thread"]).items():
        for row in rows[outermost(*(operators[name][rows] for name in ("start", "end", "order")))].tolist():
            name, shape = names[operators["name"][row]], shapes[operators["shapes"][row]]
            times = int(operators["start"][row]), int(operators["end"][row])
            yield Range(*times, thread, name.removeprefix(NODE) + shape)


def _shapes(text: bytes) -> str:
    """ "(4×256, 256)" of the JSON [[4, 256], [256], []]; "" if there are none."""
    try:
        shapes = json.loads(text) if text else []
    except ValueError:
        return ""
    filled = [_shape(shape) for shape in shapes if shape] if isinstance(shapes, list) else []
    return f"({', '.join(filled)})" if filled else ""


def _shape(shape: Any) -> str:
    if isinstance(shape, list) and any(isinstance(size, list) for size in shape):  # of a list of tensors
        return f"[{', '.join(map(_shape, shape))}]"
    return "×".join(map(str, shape)) if isinstance(shape, list) else str(shape)
