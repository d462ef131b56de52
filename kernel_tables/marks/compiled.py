"""Ranges for the parts of a compiled model: in the program that inductor writes, not in the graph that is traced.

Inductor turns a graph into kernels and a Python program that calls them, and GEMMs of libraries, one by one. For each
kernel, inductor knows which operations of the model it computes (its "provenance"): the lines of source that they came
from, and the modules that were called there. This module makes inductor write one more line before each call of a
kernel. The line opens ranges for the parts whose operations the kernel computes: `norm + qkv projection` if two are
fused. Kernels and graph stay as they are. A kernel of unknown origin is in no such range. The operations of a backward
graph have the lines and modules of the operations that they differentiate.

A compiler drops ranges from the graph that it traces, or breaks the graph at them; but it stores a stack trace with
every operation. `SourceParts` finds the blocks `with span(...)` around the lines of such a trace in the source.
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
from range_marks.marker import Marker, common_length

PATCHED_METHODS = ("write_provenance_debug_handle", "generate_return")  # of inductor's PythonWrapperCodegen
# Names of dictionaries in torch._inductor.debug. Keys: kernel and handle (a number for each call of it). Values: stack
# traces, and names of nodes of the graph.
STACK_TRACES, NODE_NAMES = "_inductor_kernel_stack_trace", "_inductor_triton_kernel_to_post_grad_node_info"
IMPORT_LINE = "from range_marks import compiled as marked_parts"
STACK_FRAME = re.compile(r'File "([^"]+)", line (\d+), in ')  # groups: path, line


class KernelOrigins(NamedTuple):
    """The operations that a kernel is made of, as far as inductor knows them."""

    stack_traces: list[str]  # of calls in the model, as Python prints them
    nodes: list[Any]  # of the FX graph that inductor lowers


class PartRange(NamedTuple):
    """A range for parts. It stays open from one kernel to the next if both its name and its instance are the same."""

    name: str
    instance: Any = None  # tells ranges of one name apart


# Whose operations a kernel computes, as the function given to `follow_compiled` returns them: a joint name, or another
# constant whose repr is valid Python, since the compiled program contains it. Unknown parts are a false value.
Parts = Any


class _ActiveParts(threading.local):
    """The parts whose kernels the calling thread launches now, and the ranges that are open for them."""

    parts: Parts = ""
    ranges: Sequence[PartRange] = ()


_ACTIVE = _ActiveParts()
_marker: Marker | None = None  # set by open_ranges, as the next
_ranges_of: Callable[[Parts], Sequence[PartRange]] = list
_original_methods: dict[str, Callable[..., Any]] = {}


def follow_compiled(parts_of: Callable[[KernelOrigins], Parts]) -> None:
    """From now on, programs that inductor writes enter the parts of each kernel before they call it. `parts_of` returns
    the parts. Programs from inductor's cache enter them only if they were written after this call."""
    from torch._inductor import config, debug
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    leave_compiled()
    if not (
        all(hasattr(debug, name) for name in (STACK_TRACES, NODE_NAMES))
        and all(hasattr(PythonWrapperCodegen, name) for name in PATCHED_METHODS)
    ):
        return  # another version of inductor: its kernels are only in the ranges around the graph
    config.trace.provenance_tracking_level = 1
    _original_methods.update({name: getattr(PythonWrapperCodegen, name) for name in PATCHED_METHODS})

    def write_handle(self, kernel_name: str, debug_handle: int | None = None) -> None:
        _original_methods["write_provenance_debug_handle"](self, kernel_name, debug_handle)
        if _writes_python(self):
            self.add_import_once(IMPORT_LINE)
            self.opens_parts = True
            self.writeline(f"marked_parts.enter({parts_of(_origins(kernel_name, debug_handle))!r})")

    def generate_return(self, output_refs: list[str]) -> None:
        if getattr(self, "opens_parts", False):
            self.wrapper_call.writeline("marked_parts.enter('')")
        _original_methods["generate_return"](self, output_refs)

    PythonWrapperCodegen.write_provenance_debug_handle = write_handle
    PythonWrapperCodegen.generate_return = generate_return


def leave_compiled() -> None:
    """Undoes `follow_compiled`; programs that are written already stay as they are."""
    if _original_methods:
        from torch._inductor import config
        from torch._inductor.codegen.wrapper import PythonWrapperCodegen

        config.trace.provenance_tracking_level = 0
        for name, original in _original_methods.items():
            setattr(PythonWrapperCodegen, name, original)
        _original_methods.clear()


def open_ranges(
    marker: Marker | None, ranges_of: Callable[[Parts], Sequence[PartRange]] = lambda parts: [PartRange(parts)]
) -> None:
    """From now on, the marker opens ranges for the parts that compiled programs enter; with None, there are no ranges.
    `ranges_of` returns the ranges for a value of Parts, outermost first."""
    global _marker, _ranges_of
    _marker, _ranges_of = marker, ranges_of


def joint_name(parts: Iterable[str | None]) -> str:
    """One name for several parts: each once, in alphabetical order; without those that are None."""
    return JOINT.join(sorted({part for part in parts if part}))


def enter(parts: Parts) -> None:
    """Called by compiled programs: the next kernels compute operations of these parts ("": unknown parts)."""
    if _marker is None or _ACTIVE.parts == parts:
        return
    ranges = _ranges_of(parts) if parts else ()
    common = common_length(_ACTIVE.ranges, ranges)
    for _ in _ACTIVE.ranges[common:]:
        _marker.pop()
    for part_range in ranges[common:]:
        _marker.push(part_range.name)
    _ACTIVE.parts, _ACTIVE.ranges = parts, ranges


def _writes_python(wrapper: Any) -> bool:
    """Whether this PythonWrapperCodegen is not a subclass of it, such as the one that writes C++."""
    from torch._inductor.codegen import wrapper as python_wrapper
    from torch._inductor.virtualized import V

    return type(wrapper).__module__ == python_wrapper.__name__ and not V.graph.cpp_wrapper


def _origins(kernel_name: str, debug_handle: int | None) -> KernelOrigins:
    """The origins of a kernel of the graph that inductor compiles at this moment."""
    from torch._inductor import debug
    from torch._inductor.virtualized import V

    key = f"{kernel_name}:{debug_handle}"
    names = set(getattr(debug, NODE_NAMES).get(key, ()))
    nodes = [node for node in V.graph.graph.nodes if node.name in names]
    return KernelOrigins(getattr(debug, STACK_TRACES).get(key, []), nodes)


class PartBlock(NamedTuple):
    """The lines of source inside a block that opens a part."""

    first: int
    last: int  # included
    part: str


class SourceParts:
    """The parts in the sources of this process's modules: blocks `with span(NAME)`; NAME is a string or a constant."""

    def __init__(self, span: Callable[[str], Any]) -> None:
        self._span = span
        self._blocks = cache(self._blocks_of)

    def innermost(self, stack_trace: str) -> str | None:
        """The innermost part around a stack of calls; None if it is in no part. The innermost call comes last."""
        for path, line in reversed(STACK_FRAME.findall(stack_trace)):
            parts = [block.part for block in self._blocks(path) if block.first <= int(line) <= block.last]
            if parts:
                return parts[-1]
        return None

    def _blocks_of(self, path: str) -> list[PartBlock]:
        """The blocks of a file, outer ones first; none if the file is not a module of this process."""
        modules = list(sys.modules.values())
        module = next((module for module in modules if getattr(module, "__file__", None) == path), None)
        if module is None:
            return []
        blocks = [
            PartBlock(node.body[0].lineno, node.end_lineno, part)
            for node in ast.walk(ast.parse(Path(path).read_text()))
            if isinstance(node, ast.With)
            for item in node.items
            if (part := self._part(item.context_expr, module)) is not None
        ]
        return sorted(blocks, key=lambda block: (block.first, -block.last))

    def _part(self, expression: ast.expr, module: ModuleType) -> str | None:
        """The name of the part that an expression opens; None if it is no call of `span`, or the name is unknown."""
        if isinstance(expression, ast.Call) and expression.args and _value(expression.func, module) is self._span:
            name = _value(expression.args[0], module)
            return name if isinstance(name, str) else None
        return None


def _value(expression: ast.expr, module: ModuleType) -> Any:
    """The value of a constant, a global name of the module, or an attribute of these; None for everything else."""
    if isinstance(expression, ast.Constant):
        return expression.value
    if isinstance(expression, ast.Name):
        return vars(module).get(expression.id)
    if isinstance(expression, ast.Attribute):
        return getattr(_value(expression.value, module), expression.attr, None)
    return None
