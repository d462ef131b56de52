"""A compiled graph by parts of the model: ranges in the program that inductor writes, none in the graph that it traces.

Inductor makes a graph into kernels, and a Python program that calls them one by one, GEMMs of libraries included. It
knows of each call which operations of the model it serves (its "provenance"): the lines of the source they came from,
and the modules that were called there. Here a line more is written before each call, which opens ranges for the parts
that the kernel serves: `norm + qkv projection` if it is fused of two. Kernels and graph stay as they are; a call of
unknown origin is in no such range. The backward graph has the lines and modules of the operations that it
differentiates.

The part of the model around a line of source is known by the blocks `with span(...)` that enclose it. A compiler drops
ranges from the graph that it traces, or breaks it at them; but it notes of every operation the lines that called it,
one inside the other. So the parts that contain those lines are known without running anything.
"""

import ast
import re
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from range_marks import JOINT
from range_marks.marker import Marker

PATCHED = ("write_provenance_debug_handle", "generate_return")  # methods of inductor's PythonWrapperCodegen
TRACES = "_inductor_kernel_stack_trace"  # in torch._inductor.debug: by kernel and handle, the stacks of calls
NODES = "_inductor_triton_kernel_to_post_grad_node_info"  # the same, names of nodes of the graph
IMPORT = "from range_marks import compiled as marked_parts"


class KernelOrigins(NamedTuple):
    """The operations that a kernel is made of, as far as inductor knows them."""

    stack_traces: list[str]  # of calls, as Python prints them
    nodes: list[Any]  # of the FX graph that inductor lowers


class PartRange(NamedTuple):
    """A range for parts. It stays open from kernel to kernel as long as both are the same."""

    name: str
    instance: Any = None


Parts = Any  # what a kernel serves: a constant that Python can write and read; false if it is not known


class _ActiveParts(threading.local):
    """The parts whose kernels the calling thread launches, and the ranges that are open for them."""

    parts: Parts = ""
    ranges: Sequence[PartRange] = ()


_ACTIVE = _ActiveParts()
_marker: Marker | None = None
_ranges_of: Callable[[Parts], Sequence[PartRange]] = list
_plain: dict[str, Callable[..., Any]] = {}


def follow_compiled(parts_of: Callable[[KernelOrigins], Parts]) -> None:
    """From now on what inductor compiles enters the parts of each kernel before it calls it. What is compiled must not
    come from a cache that was filled without this."""
    from torch._inductor import config, debug
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    leave_compiled()
    if not (
        all(hasattr(debug, name) for name in (TRACES, NODES))
        and all(hasattr(PythonWrapperCodegen, name) for name in PATCHED)
    ):
        return  # another version of inductor: its kernels are only in the ranges around the graph
    config.trace.provenance_tracking_level = 1
    _plain.update({name: getattr(PythonWrapperCodegen, name) for name in PATCHED})

    def write_handle(self, kernel_name: str, debug_handle: int | None = None) -> None:
        _plain["write_provenance_debug_handle"](self, kernel_name, debug_handle)
        if _writes_python(self):
            self.add_import_once(IMPORT)
            self.opens_parts = True
            self.writeline(f"marked_parts.enter({parts_of(_origins(kernel_name, debug_handle))!r})")

    def generate_return(self, output_refs: list[str]) -> None:
        if getattr(self, "opens_parts", False):
            self.wrapper_call.writeline("marked_parts.enter('')")
        _plain["generate_return"](self, output_refs)

    PythonWrapperCodegen.write_provenance_debug_handle = write_handle
    PythonWrapperCodegen.generate_return = generate_return


def leave_compiled() -> None:
    """What is compiled from now on is as inductor makes it."""
    if _plain:
        from torch._inductor import config
        from torch._inductor.codegen.wrapper import PythonWrapperCodegen

        config.trace.provenance_tracking_level = 0
        for name, plain in _plain.items():
            setattr(PythonWrapperCodegen, name, plain)
        _plain.clear()


def open_ranges(
    marker: Marker | None, ranges_of: Callable[[Parts], Sequence[PartRange]] = lambda parts: [PartRange(parts)]
) -> None:
    """From now on parts that are entered open the marker's ranges, with None none; `ranges_of` gives the ranges of some
    parts, outermost first."""
    global _marker, _ranges_of
    _marker, _ranges_of = marker, ranges_of


def set_of_parts(parts: Iterable[str | None]) -> str:
    """The name of a set of parts: each once, in alphabetical order, so that a set has one name."""
    return JOINT.join(sorted({part for part in parts if part}))


def enter(parts: Parts) -> None:
    """Called by compiled programs: the kernels that follow serve these parts ("": it is not known which)."""
    if _marker is None or _ACTIVE.parts == parts:
        return
    opened, ranges = _ACTIVE.ranges, _ranges_of(parts) if parts else ()
    common = 0
    while common < min(len(opened), len(ranges)) and opened[common] == ranges[common]:
        common += 1
    for _ in opened[common:]:
        _marker.pop()
    for opening in ranges[common:]:
        _marker.push(opening.name)
    _ACTIVE.parts, _ACTIVE.ranges = parts, ranges


def _writes_python(wrapper: Any) -> bool:
    from torch._inductor.codegen import wrapper as of_python
    from torch._inductor.virtualized import V

    return type(wrapper).__module__ == of_python.__name__ and not V.graph.cpp_wrapper


def _origins(kernel_name: str, debug_handle: int | None) -> KernelOrigins:
    from torch._inductor import debug
    from torch._inductor.virtualized import V

    key = f"{kernel_name}:{debug_handle}"
    names = set(getattr(debug, NODES).get(key, ()))
    nodes = [node for node in V.graph.graph.nodes if node.name in names]
    return KernelOrigins(getattr(debug, TRACES).get(key, []), nodes)


FRAME = re.compile(r'File "([^"]+)", line (\d+), in ')

Block = tuple[int, int, str]  # first and last line, and the name of the part


class WrittenParts:
    """The parts that modules of this process open in their sources, by calls of `span` with a constant or its name."""

    def __init__(self, span: Callable[[str], Any]) -> None:
        self._span = span
        self._blocks = cache(self._blocks_of)

    def innermost(self, stack_trace: str) -> str | None:
        """The innermost part that a stack of calls, outermost first as Python writes it, is in."""
        for path, line in reversed(FRAME.findall(stack_trace)):
            blocks = [name for first, last, name in self._blocks(path) if first <= int(line) <= last]
            if blocks:
                return blocks[-1]
        return None

    def _blocks_of(self, path: str) -> list[Block]:
        """The blocks of a file, outer ones first; none if the file is not a module of this process."""
        modules = list(sys.modules.values())
        module = next((module for module in modules if getattr(module, "__file__", None) == path), None)
        if module is None:
            return []
        blocks = [
            (node.body[0].lineno, node.end_lineno, name)
            for node in ast.walk(ast.parse(Path(path).read_text()))
            if isinstance(node, ast.With)
            for item in node.items
            if (name := self._opened(item.context_expr, module)) is not None
        ]
        return sorted(blocks, key=lambda block: (block[0], -block[1]))

    def _opened(self, expression: ast.expr, module: ModuleType) -> str | None:
        """The name of the part that an expression opens, if it is a call of `span`."""
        if isinstance(expression, ast.Call) and expression.args and _value(expression.func, module) is self._span:
            name = _value(expression.args[0], module)
            return name if isinstance(name, str) else None
        return None


def _value(expression: ast.expr, module: ModuleType) -> Any:
    """What a constant, a global name or an attribute of one means; None for everything else."""
    if isinstance(expression, ast.Constant):
        return expression.value
    if isinstance(expression, ast.Name):
        return vars(module).get(expression.id)
    if isinstance(expression, ast.Attribute):
        return getattr(_value(expression.value, module), expression.attr, None)
    return None
