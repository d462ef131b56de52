"""Ranges for the parts of a compiled model: in the program that inductor writes, not in the graph that is traced.

Inductor turns a graph into kernels and a Python program that calls them, and GEMMs of libraries, one by one. For each
kernel, inductor knows which operations of the model it computes (its "provenance"): the lines of source that they came
from, and the modules that were called there. This module makes inductor write one more line before each call of a
kernel. The line opens ranges for the parts whose operations the kernel computes: `norm + qkv projection` if two are
fused. Kernels and graph stay as they are. A kernel of unknown origin is in no such range. The operations of a backward
graph have the lines and modules of the operations that they differentiate.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from kernel_tables.marks import JOINT
from kernel_tables.marks.marker import Marker, common_length


class PartRange(NamedTuple):
    """A range for parts. It stays open from one kernel to the next if both its name and its instance are the same."""

    name: str
    instance: Any = None  # tells ranges of one name apart


_marker: Marker | None = None  # set by open_ranges, as the next
_ranges_of: Callable[[Any], Sequence[PartRange]] = list
_local = threading.local()  # `parts` whose kernels this thread launches now, and the `ranges` that are open for them
_original_methods: dict[str, Callable[..., Any]] = {}  # of inductor's PythonWrapperCodegen, while it is changed


def follow_compiled(parts_of: Callable[[list[str], list[Any]], Any]) -> None:
    """From now on, programs that inductor writes enter the parts of each kernel before they call it. Programs from
    inductor's cache enter them only if they were written after this call.

    `parts_of` returns the parts whose operations a kernel computes, from what inductor knows of it: the stack traces of
    calls in the model, as Python prints them, and nodes of the FX graph. Parts are a joint name, or another constant
    whose repr is valid Python, since the compiled program contains it; unknown ones are a false value."""
    from torch._inductor import config, debug
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen
    from torch._inductor.virtualized import V

    leave_compiled()
    # by kernel and handle (a number for each call of it): stack traces, and names of nodes
    traces, nodes_of = "_inductor_kernel_stack_trace", "_inductor_triton_kernel_to_post_grad_node_info"
    methods = ("write_provenance_debug_handle", "generate_return")
    if not all(map(hasattr, [debug, debug, *[PythonWrapperCodegen] * 2], [traces, nodes_of, *methods])):
        return  # another version of inductor: its kernels are only in the ranges around the graph
    config.trace.provenance_tracking_level = 1
    _original_methods.update({name: getattr(PythonWrapperCodegen, name) for name in methods})

    def write_handle(self, kernel_name: str, debug_handle: int | None = None) -> None:
        _original_methods["write_provenance_debug_handle"](self, kernel_name, debug_handle)
        # not a subclass, such as the one that writes C++
        if type(self).__module__ == PythonWrapperCodegen.__module__ and not V.graph.cpp_wrapper:
            key = f"{kernel_name}:{debug_handle}"
            names = set(getattr(debug, nodes_of).get(key, ()))
            nodes = [node for node in V.graph.graph.nodes if node.name in names]
            parts = parts_of(getattr(debug, traces).get(key, []), nodes)
            self.add_import_once("from kernel_tables.marks import compiled as marked_parts")
            self.opens_parts = True
            self.writeline(f"marked_parts.enter({parts!r})")

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
    marker: Marker | None, ranges_of: Callable[[Any], Sequence[PartRange]] = lambda parts: [PartRange(parts)]
) -> None:
    """From now on, the marker opens ranges for the parts that compiled programs enter; with None, there are no ranges.
    `ranges_of` returns the ranges for parts, outermost first."""
    global _marker, _ranges_of
    _marker, _ranges_of = marker, ranges_of


def joint_name(parts: Iterable[str | None]) -> str:
    """One name for several parts: each once, in alphabetical order; without those that are None."""
    return JOINT.join(sorted({part for part in parts if part}))


def enter(parts: Any) -> None:
    """Called by compiled programs: the next kernels compute operations of these parts ("": unknown parts)."""
    if _marker is None or getattr(_local, "parts", "") == parts:
        return
    open_ones, ranges = getattr(_local, "ranges", ()), _ranges_of(parts) if parts else ()
    common = common_length(open_ones, ranges)
    for _ in open_ones[common:]:
        _marker.pop()
    for part_range in ranges[common:]:
        _marker.push(part_range.name)
    _local.parts, _local.ranges = parts, ranges
