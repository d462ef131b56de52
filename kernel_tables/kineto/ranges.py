"""The ranges of a trace: annotations of the program, and, if the recorder did not write it, backward passes and modules
(if the trace has stacks) or operators.

PyTorch's profiler shows each collective of Gloo as a range on a thread of Gloo's own, for the time that it ran, and
the call that started it, `c10d::allreduce_`, as an operator on the calling thread.
"""

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernel_tables.kineto.backward import NODE, backward_ranges, node_mask
from kernel_tables.kineto.modules import ModuleCalls, Range, outermost, rows_by_thread
from kernel_tables.kineto.names import decoded
from kernel_tables.kineto.trace import ANNOTATION, FUNCTION, MODULE, NONE, OPERATOR, Columns, TorchTrace

BACKWARD, STEP = "backward", "step"
PROFILER_STEP = re.compile(r"ProfilerStep#\d+")  # of torch.profiler's schedule
GLOO_PREFIX, CALL_PREFIX = "gloo:", "c10d::"
OPERATION_OF_CALL = {  # for calls on one tensor; Gloo has no reduce-scatter, but reduces all, and keeps a part
    "allgatherbase": "allgather",
    "reducescatterbase": "allreduce",
}


class GlooCollective(NamedTuple):
    """The row of its annotation, and the row of the operator that started it, NONE if that ran before the trace."""

    annotation: int
    call: int


def gloo_collectives(trace: TorchTrace) -> list[GlooCollective]:
    """The collectives of Gloo, by start.

    Gloo runs collectives in the order of the calls: each belongs to the earliest call of its operation that began
    before it, and that no other collective belongs to.
    """
    calls: dict[str, deque[int]] = defaultdict(deque)
    for row, operation in _operations(trace, OPERATOR, CALL_PREFIX):
        calls[operation].append(row)
    collectives = []
    for row, operation in _operations(trace, ANNOTATION, GLOO_PREFIX):
        free_calls = calls[operation]
        has_call = free_calls and trace[OPERATOR]["start"][free_calls[0]] <= trace[ANNOTATION]["start"][row]
        collectives.append(GlooCollective(row, free_calls.popleft() if has_call else NONE))
    return collectives


def _operations(trace: TorchTrace, kind: str, prefix: str) -> Iterator[tuple[int, str]]:
    """(row, operation) of each event whose name has the prefix, by start."""
    names = trace.names_of(kind)
    rows = np.array([row for row, name in enumerate(names) if name.startswith(prefix)], np.int64)
    for row in rows[np.lexsort((trace[kind]["order"][rows], trace[kind]["start"][rows]))].tolist():
        operation = names[row].removeprefix(prefix).replace("_", "")
        yield row, OPERATION_OF_CALL.get(operation, operation)


def derived_ranges(trace: TorchTrace, *, on_gpu: bool) -> list[Range]:
    """The ranges of a trace that the recorder did not write. Operators become ranges only if the trace has no modules,
    and only `on_gpu`: without a GPU, they are the activities."""
    ranges = _with_steps(annotations(trace, with_gloo=on_gpu))
    calls = ModuleCalls(trace)
    opened_passes = [opened for opened in ranges if opened.name == BACKWARD]
    ranges += _without_inner(_backward_passes(trace, calls), opened_passes)
    if len(calls):
        passes_end_ns = np.unique([any_range.end_ns for any_range in ranges])  # annotations separate passes, too
        # Of ranges with equal times, the earlier in the list is the outer one; backward_ranges yields inner ones first.
        ranges += reversed(list(backward_ranges(trace, calls, passes_end_ns)))
        ranges += calls.ranges
    elif on_gpu:
        ranges += _operators(trace)
    return ranges


def has_modules(trace: TorchTrace) -> bool:
    """Whether the trace has calls of modules."""
    return any(name.startswith(MODULE) for name in trace.names.values)


def annotations(trace: TorchTrace, *, with_gloo: bool) -> list[Range]:
    """The ranges that the program opened; `with_gloo` also Gloo's collectives, which are activities in a capture
    without a GPU."""
    ranges = _as_ranges(trace[ANNOTATION], slice(None), map(decoded, trace.names_of(ANNOTATION)))
    return [opened for opened in ranges if with_gloo or not opened.name.startswith(GLOO_PREFIX)]


def recorded_ranges(trace: TorchTrace, *, on_gpu: bool) -> list[Range]:
    """The ranges of a trace that the recorder wrote. If it has steps, those of the program's own schedule are left out:
    they end elsewhere, and would divide the recorder's."""
    ranges = annotations(trace, with_gloo=on_gpu)
    if not any(opened.name == STEP for opened in ranges):
        return ranges
    return [opened for opened in ranges if not PROFILER_STEP.fullmatch(opened.name)]


def _with_steps(ranges: list[Range]) -> list[Range]:
    """The ranges; numbered steps of torch.profiler's schedule become `step`, or if there is one, `ProfilerStep`."""
    step = "ProfilerStep" if any(opened.name == STEP for opened in ranges) else STEP
    return [opened._replace(name=step) if PROFILER_STEP.fullmatch(opened.name) else opened for opened in ranges]


def _backward_passes(trace: TorchTrace, calls: ModuleCalls) -> list[Range]:
    """The calls of torch.autograd.backward; in a trace without these and without modules, the times in which a thread
    runs nodes in a row."""
    functions, names = trace[FUNCTION], trace.names.values
    # Functions are calls of modules, or of torch.autograd.backward (trace.py).
    rows = [row for row, name in enumerate(functions["name"].tolist()) if not names[name].startswith(MODULE)]
    if rows or len(calls):
        return _as_ranges(functions, rows, [BACKWARD] * len(rows))
    return list(_node_sequences(trace))


def _node_sequences(trace: TorchTrace) -> Iterator[Range]:
    """The times in which a thread runs nodes of autograd, with no other outermost operator and no end of an annotation
    between them."""
    operators, is_node = trace[OPERATOR], node_mask(trace)
    annotation_ends_ns = np.unique(trace[ANNOTATION]["end"])
    for thread, rows in rows_by_thread(operators["thread"]).items():
        rows = outermost(operators, rows)
        start_ns, end_ns, is_outermost_node = operators["start"][rows], operators["end"][rows], is_node[rows]
        ended_at_start = np.searchsorted(annotation_ends_ns, start_ns, "right")  # the number of ended annotations
        ended_at_end = np.searchsorted(annotation_ends_ns, end_ns, "right")
        continues = is_outermost_node[1:] & is_outermost_node[:-1] & (ended_at_start[1:] == ended_at_end[:-1])
        is_first = is_outermost_node & ~np.append(False, continues)[: len(rows)]
        is_last = is_outermost_node & ~np.append(continues, False)[: len(rows)]
        for begin_ns, end_ns_of_last in zip(start_ns[is_first].tolist(), end_ns[is_last].tolist(), strict=True):
            yield Range(begin_ns, end_ns_of_last, thread, BACKWARD)


def _as_ranges(events: Columns, rows: Sequence[int] | slice, names: Iterable[str]) -> list[Range]:
    """The events in these rows as ranges with these names."""
    columns = (events[name][rows].tolist() for name in ("start", "end", "thread"))
    return [Range(*times, name) for *times, name in zip(*columns, names, strict=True)]


def _without_inner(ranges: list[Range], outer: list[Range]) -> list[Range]:
    """The `ranges` that lie in none of `outer` in time."""
    if not ranges or not outer:
        return ranges
    starts_ns, ends_ns = np.array(sorted((around.start_ns, around.end_ns) for around in outer)).T
    latest_end_ns = np.maximum.accumulate(ends_ns)
    begun_count = np.searchsorted(starts_ns, [inner.start_ns for inner in ranges], "right")
    is_inside = (begun_count > 0) & (latest_end_ns[begun_count - 1] >= [inner.end_ns for inner in ranges])
    return [ranges[index] for index in np.flatnonzero(~is_inside)]


def _operators(trace: TorchTrace) -> Iterator[Range]:
    """The outermost operators, with the shapes of their inputs."""
    operators, names = trace[OPERATOR], trace.names.values
    shapes = [_shapes_text(text) for text in trace.shapes.values]
    for rows in rows_by_thread(operators["thread"]).values():
        rows = outermost(operators, rows)
        pairs = zip(operators["name"][rows].tolist(), operators["shapes"][rows].tolist(), strict=True)
        range_names = [names[name].removeprefix(NODE) + shapes[input_shapes] for name, input_shapes in pairs]
        yield from _as_ranges(operators, rows, range_names)


def _shapes_text(text: bytes) -> str:
    """ "(4×256, 256)" for the JSON [[4, 256], [256], []]; "" without shapes."""
    try:
        shapes = json.loads(text) if text else []
    except ValueError:
        return ""
    texts = [_shape_text(shape) for shape in shapes if shape] if isinstance(shapes, list) else []
    return f"({', '.join(texts)})" if texts else ""


def _shape_text(shape: Any) -> str:
    if isinstance(shape, list) and any(isinstance(size, list) for size in shape):  # of a list of tensors
        return f"[{', '.join(map(_shape_text, shape))}]"
    return "×".join(map(str, shape)) if isinstance(shape, list) else str(shape)
