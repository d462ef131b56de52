"""The ranges of a trace: annotations of the program, modules where the trace has stacks, operators where it has not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernel_tables.kineto.backward import NODE, Range, backward_ranges, is_node
from kernel_tables.kineto.collectives import PREFIX as OF_GLOO
from kernel_tables.kineto.modules import ModuleCalls
from kernel_tables.kineto.names import decoded
from kernel_tables.kineto.nests import by_thread, outermost
from kernel_tables.kineto.trace import ANNOTATION, BITS, FUNCTION, MODULE, OPERATOR, Trace

BACKWARD, STEP = "backward", "step"
PROFILER_STEP = re.compile(r"ProfilerStep#\d+")


def ranges_of(trace: Trace, *, on_gpu: bool) -> list[Range]:
    """All ranges. Operators are among them on a GPU alone: on a processor they are what takes time."""
    own = _with_steps(annotations(trace, with_gloo=on_gpu))
    calls = ModuleCalls(trace)
    found = own + [one for one in _backward_passes(trace, calls) if not _is_named_so(one, own)]
    if len(calls):
        passes_end_ns = np.unique([one.end_ns for one in found])
        # Of ranges with equal times the earlier row is the outer one; inner ones end first.
        found += reversed(list(backward_ranges(trace, calls, passes_end_ns)))
        found += [_of_call(calls, call) for call in calls.shown]
    elif on_gpu:
        found += _operators(trace)
    return found


def has_modules(trace: Trace) -> bool:
    """Whether the trace has calls of modules."""
    return any(name.startswith(MODULE) for name in trace.names.things)


def annotations(trace: Trace, *, with_gloo: bool) -> list[Range]:
    """The program's own ranges, those of Gloo's threads only WITH GLOO."""
    names = [decoded(name) for name in trace.named(ANNOTATION)]
    columns = (trace[ANNOTATION][name].tolist() for name in ("start", "end", "thread"))
    found = [Range(*times, name) for *times, name in zip(*columns, names, strict=True)]
    return [one for one in found if with_gloo or not one.name.startswith(OF_GLOO)]


def _with_steps(ranges: list[Range]) -> list[Range]:
    """The ranges; the steps of torch.profiler's schedule, which are numbered, are `step` where no range is named so."""
    step = "ProfilerStep" if any(one.name == STEP for one in ranges) else STEP
    return [one._replace(name=step) if PROFILER_STEP.fullmatch(one.name) else one for one in ranges]


def _backward_passes(trace: Trace, calls: ModuleCalls) -> Iterator[Range]:
    """The calls of torch.autograd.backward; without stacks, the time in which a thread runs nodes one after another."""
    functions, names = trace[FUNCTION], trace.names.things
    rows = [row for row, name in enumerate(functions["name"].tolist()) if not names[name].startswith(MODULE)]
    if rows or len(calls):
        columns = (functions[name][rows].tolist() for name in ("start", "end", "thread"))
        yield from (Range(*row, BACKWARD) for row in zip(*columns, strict=True))
        return
    operators, node = trace[OPERATOR], is_node(trace)
    ends_ns = np.unique(trace[ANNOTATION]["end"])
    for thread, rows in by_thread(operators["thread"]).items():
        rows = rows[outermost(*(operators[name][rows] for name in ("start", "end", "order")))]
        start, end, of_node = operators["start"][rows], operators["end"][rows], node[rows]
        passes = np.searchsorted(ends_ns, start, "right"), np.searchsorted(ends_ns, end, "right")
        follows = of_node[1:] & of_node[:-1] & (passes[0][1:] == passes[1][:-1])
        begins = np.flatnonzero(of_node & ~np.append(False, follows)[: len(rows)])
        ends = np.flatnonzero(of_node & ~np.append(follows, False)[: len(rows)])
        for begin, until in zip(start[begins].tolist(), end[ends].tolist(), strict=True):
            yield Range(begin, until, thread, BACKWARD)


def _is_named_so(one: Range, ranges: list[Range]) -> bool:
    """Whether one of RANGES has this name and is around the range, on any thread of its process."""
    return any(
        other.name == one.name
        and other.thread >> BITS == one.thread >> BITS
        and other.start_ns <= one.start_ns
        and one.end_ns <= other.end_ns
        for other in ranges
    )


def _of_call(calls: ModuleCalls, call: int) -> Range:
    return Range(int(calls.start[call]), int(calls.end[call]), int(calls.thread[call]), calls.names[call])


def _operators(trace: Trace) -> Iterator[Range]:
    """The outermost operators, with the shapes of their inputs; a node of autograd has those of what it runs."""
    operators, names = trace[OPERATOR], trace.names.things
    shapes = [_shown(text) for text in trace.shapes.things]
    for thread, rows in by_thread(operators["thread"]).items():
        for row in rows[outermost(*(operators[name][rows] for name in ("start", "end", "order")))].tolist():
            name, shape = names[operators["name"][row]], shapes[operators["shapes"][row]]
            times = int(operators["start"][row]), int(operators["end"][row])
            yield Range(*times, thread, name.removeprefix(NODE) + shape)


def _shown(shapes: bytes) -> str:
    """ "(4×256, 256)" of the JSON [[4, 256], [256], []]; "" where there are none."""
    try:
        found = json.loads(shapes) if shapes else []
    except ValueError:
        return ""
    shown = [_shape(shape) for shape in found if shape] if isinstance(found, list) else []
    return f"({', '.join(shown)})" if shown else ""


def _shape(shape: Any) -> str:
    if isinstance(shape, list) and any(isinstance(size, list) for size in shape):  # of a list of tensors
        return f"[{', '.join(map(_shape, shape))}]"
    return "×".join(map(str, shape)) if isinstance(shape, list) else str(shape)
