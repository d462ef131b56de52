"""A compiled graph by parts of the model: ranges in the program that inductor writes, none in the graph that it traces.

Inductor makes a graph into kernels, and a Python program that calls them one by one, GEMMs of libraries included. It
knows of each call from which lines of the model its operations came (its "provenance", which it writes as a comment
before the call). Here a line more is written there, which opens a range named after the parts that the kernel serves:
`norm + qkv projection` if it is fused of two. Kernels and graph stay as they are; a call without known lines stands in
no such range. The backward graph has the lines of the operations that it differentiates.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any

from range_marks import JOINT
from range_marks.marker import Marker

PATCHED = ("write_provenance_debug_handle", "generate_return")  # methods of inductor's PythonWrapperCodegen
TRACES = "_inductor_kernel_stack_trace"  # in torch._inductor.debug: by kernel and handle, the stacks of calls
IMPORT = "from range_marks import compiled as marked_parts"


class _ActiveParts(threading.local):
    """The set of parts whose kernels the calling thread launches."""

    parts = ""


_ACTIVE = _ActiveParts()
_marker: Marker | None = None
_plain: dict[str, Callable[..., Any]] = {}


def follow_compiled(marker: Marker, part_of: Callable[[str], str | None]) -> None:
    """From now on what inductor compiles opens the marker's ranges. `part_of` gives the part of a stack of calls, which
    is a text as Python prints it. What is compiled must not come from a cache that was filled without this."""
    global _marker
    from torch._inductor import config, debug
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    leave_compiled()
    if not (hasattr(debug, TRACES) and all(hasattr(PythonWrapperCodegen, name) for name in PATCHED)):
        return  # an inductor that keeps other books: its kernels stand in the ranges around the graph alone
    _marker = marker
    config.trace.provenance_tracking_level = 1
    _plain.update({name: getattr(PythonWrapperCodegen, name) for name in PATCHED})

    def write_handle(self, kernel_name: str, debug_handle: int | None = None) -> None:
        _plain["write_provenance_debug_handle"](self, kernel_name, debug_handle)
        self.add_import_once(IMPORT)
        self.opens_parts = True
        parts = set_of_parts(map(part_of, _stack_traces(kernel_name, debug_handle)))
        self.writeline(f"marked_parts.enter({parts!r})")

    def generate_return(self, output_refs: list[str]) -> None:
        if getattr(self, "opens_parts", False):
            self.wrapper_call.writeline("marked_parts.enter('')")
        _plain["generate_return"](self, output_refs)

    PythonWrapperCodegen.write_provenance_debug_handle = write_handle
    PythonWrapperCodegen.generate_return = generate_return


def leave_compiled() -> None:
    """What is compiled from now on is as inductor makes it, and what was compiled before opens nothing."""
    global _marker
    _marker = None
    if _plain:
        from torch._inductor import config
        from torch._inductor.codegen.wrapper import PythonWrapperCodegen

        config.trace.provenance_tracking_level = 0
        for name, plain in _plain.items():
            setattr(PythonWrapperCodegen, name, plain)
        _plain.clear()


def set_of_parts(parts: Iterable[str | None]) -> str:
    """The name of a set of parts: each once, in alphabetical order, so that a set has one name."""
    return JOINT.join(sorted({part for part in parts if part}))


def enter(parts: str) -> None:
    """Called by compiled programs: the kernels that follow serve these parts ("": it is not known which)."""
    if _ACTIVE.parts == parts or _marker is None:
        return
    if _ACTIVE.parts:
        _marker.pop()
    if parts:
        _marker.push(parts)
    _ACTIVE.parts = parts


def _stack_traces(kernel_name: str, debug_handle: int | None) -> list[str]:
    """The stacks of calls of the operations that a kernel is made of, as far as inductor knows them."""
    from torch._inductor import debug

    return getattr(debug, TRACES).get(f"{kernel_name}:{debug_handle}", [])
