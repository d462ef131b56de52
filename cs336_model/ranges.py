"""The ranges that the measured program opens, and `span`, which opens one.

Each layer opens the ranges of a block; their names have no layer numbers. In the backward pass, the parts of the
forward pass are opened again, each around what differentiates it; tests/golden/grid/ranges.csv has all of a step.
Ranges of communication are in cs336_model/parallel.py. A timed run opens none, since that costs time. This module
imports neither torch nor nvtx until ranges are emitted.
"""

import functools
import linecache
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

RECORDING, DOMAIN = "recording", "cs336_model"  # the range around all that nsys may record, and its NVTX domain
# ranges around parts of the model that are no parts themselves: no backward pass opens them again
AROUND_PARTS = {"compile", "warmup", "measure", "no_sync", "step", "forward", "backward", "optimizer", "synchronize"}
COMMUNICATION = ("all-reduce", "all-gather", "wait for all-gather", "reduce-scatter")  # beginnings of names, no parts

_NO_RANGE = nullcontext()
_open: Callable[[str], AbstractContextManager] | None = None  # what `span` does in this process; None: nothing
_marker = None  # kernel_tables.marks.Marker while a profiler sees ranges


def span(name: str) -> AbstractContextManager:
    """A context manager around the work of one range; it does nothing until ranges are emitted."""
    return _NO_RANGE if _open is None else _open(name)


def in_range(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with each call in a range of this name."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with span(name):
            return function(*args, **kwargs)

    return wrapped


def are_recorded() -> bool:
    """Whether a profiler or a recorder sees spans as ranges."""
    return _marker is not None


def emit_ranges(emitter: Any) -> None:
    """Sets what a span is in this process: a range of "nsys" (NVTX) or of PyTorch's profiler ("torch"), or what a
    kernel_tables.marks.Emitter opens. The backward pass then opens the parts of the forward pass again, each around
    what differentiates it."""
    global _marker, _open
    from kernel_tables import marks

    emitters = {"torch": marks.record_function_emitter, "nsys": marks.nvtx_emitter}
    _marker = new = marks.Marker(emitters[emitter]() if isinstance(emitter, str) else emitter)
    marks.follow_backward(new)
    is_around = lambda name: name in AROUND_PARTS or name.startswith(COMMUNICATION)  # noqa: E731
    _open = lambda name: new.range(name) if is_around(name) else new.part(name)  # noqa: E731


def mark_modules(model: Any) -> None:
    """Opens a range around each call of a module of this model, with its name in kernel_tables.marks.module_names, for
    a model that has no spans of its own. Does nothing in a timed run."""
    if _open is None:
        return
    from kernel_tables import marks

    taken = {*AROUND_PARTS, "loss", marks.RECOMPUTATION}
    names = {id(module): f"module {name}" if name in taken else name
             for module, name in marks.module_names(model)}  # fmt: skip
    marks.ModuleParts(span, lambda module: names.get(id(module))).begin()


def mark_compiled(is_compiling: Callable[[], bool]) -> None:
    """Makes spans do nothing while `is_compiling()`: a range would break the graph that is traced. Compiled code, which
    has no spans, opens a range around each kernel, named after the parts that the kernel computes. Does nothing in a
    timed run."""
    global _open
    if (open_range := _open) is None:
        return
    from kernel_tables.marks import compiled

    _open = lambda name: _NO_RANGE if is_compiling() else open_range(name)  # noqa: E731
    compiled.follow_compiled(lambda traces, _: compiled.joint_name(map(find_part, traces)))
    compiled.open_ranges(_marker)


def find_part(stack_trace: str) -> str | None:
    """The innermost part around a stack of calls as Python prints it, the innermost call last; None if it is in no
    part. A compiler drops ranges from the graph that it traces, but stores such a stack with every operation."""
    called = reversed(re.findall(r'File "([^"]+)", line (\d+), in ', stack_trace))
    return next(filter(None, (find_block(path, int(line)) for path, line in called)), None)


@functools.cache
def find_block(path: str, number: int) -> str | None:
    """The part of the innermost block `with span("PART")` around a line of a source file."""
    lines = [line for line in linecache.getlines(path)[:number] if line.strip()]
    depths = [len(line) - len(line.lstrip()) for line in lines]
    depth = depths[-1] if depths else 0
    for line, indentation in zip(reversed(lines), reversed(depths), strict=True):
        if indentation < depth:
            depth = indentation
            if block := re.match(r'\s*with (?:\w+\.)?span\("([^"]+)"\)', line):
                return block[1]
    return None
