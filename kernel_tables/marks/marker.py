"""Parts of a model as ranges, and the record of which part made which node of autograd's graph.

Autograd numbers its nodes: every thread counts the nodes that it makes. The nodes of a part are those whose numbers the
counter gave while the part was open. So the forward pass only has to read the counter when a part opens or closes.
`backward` uses these numbers. A range is a push/pop range of NVTX, or a record_function of PyTorch's profiler.
"""

import re
import sys
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

import torch
from torch.autograd import _get_sequence_nr as next_node_number  # counter of this thread
from torch.autograd.profiler import record_function

from kernel_tables.marks import RECOMPUTATION


def uncompiled(function: Callable, *, with_calls: bool = True) -> Callable:
    """The function, marked so that torch.compile does not compile it, nor with `with_calls` what it calls: a hook that
    runs in a program, parts of which are compiled. Before PyTorch 2.7, unmarked."""
    # torch.compiler.disable would import the compiler, which takes seconds, and would break the graph of a caller.
    dynamo = torch._C._dynamo.eval_frame
    if hasattr(dynamo, "set_code_exec_strategy"):  # in PyTorch 2.7 and newer
        skip, default = dynamo._FrameAction.SKIP, dynamo._FrameAction.DEFAULT
        strategy = dynamo._FrameExecStrategy(skip, skip if with_calls else default)
        dynamo.set_code_exec_strategy(function.__code__, strategy)
    return function


def is_in_backward() -> bool:
    """Whether autograd runs a backward pass on this thread."""
    return torch._C._current_graph_task_id() != -1


class Emitter(NamedTuple):
    """How a range is opened by its name, and how the range that the calling thread opened last is closed."""

    push: Callable[[str], object]
    pop: Callable[[], object]


def nvtx_emitter() -> Emitter:
    """Push/pop ranges in NVTX's default domain, which nsys records. They cost less than nvtx.annotate, which creates
    attributes for every range. ModuleNotFoundError without the package nvtx."""
    import nvtx

    return Emitter(nvtx.push_range, nvtx.pop_range)


def record_function_emitter() -> Emitter:
    """Ranges of PyTorch's own profiler ("user_annotation" in its trace), with names as `encoded` gives them."""
    local = threading.local()  # `ranges`: those that are open on the calling thread

    def push(name: str) -> None:
        opened = record_function(encoded(name))
        opened.__enter__()
        local.__dict__.setdefault("ranges", []).append(opened)

    return Emitter(push, lambda: local.ranges.pop().__exit__(None, None, None))


def encoded(name: str) -> str:
    """A name as PyTorch's profiler can keep it. Kineto writes it into its JSON as it is: a quotation mark breaks the
    whole file, a backslash becomes a slash, and anything but printable ASCII makes it "unknown". Such names are written
    as %= and percent encoding, which `kernel_tables` reads; what is encoded already stays."""
    is_kept = re.fullmatch(r"""[ !#-\[\]-~]*""", name)
    return name if is_kept else "%=" + quote(name, safe=" ", errors="surrogatepass")


@dataclass(eq=False, slots=True)
class PartInstance:
    """One call of a part in a forward pass."""

    name: str


def common_length(first: Sequence, second: Sequence) -> int:
    """The number of elements, from the beginning, that are the same in both."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(first), len(second)))


class MarkerState(threading.local):
    """The state of the marker on the calling thread."""

    MAX_CHAINS = 1 << 17  # remembered; older ones are forgotten, so that memory does not grow for ever

    def __init__(self) -> None:
        # chains of PartInstance, the outermost first
        self.forward_parts: tuple = ()  # the open parts of a forward pass
        self.reopened_parts: tuple = ()  # parts that a backward pass has opened again, for the node that runs
        # the reopened parts of a checkpoint's node, closed while it computes parts again; None at other times
        self.suspended_parts: tuple | None = None
        # chains[i] was open while this thread made the nodes from first_nodes[i] to first_nodes[i + 1] - 1
        self.first_nodes: list[int] = []
        self.chains: list[tuple] = []

    def record(self) -> None:
        """Notes that the nodes from the next one on are made in the parts that are open now."""
        number = next_node_number()
        if self.first_nodes and self.first_nodes[-1] == number:  # no node was made since the last note
            self.chains[-1] = self.forward_parts
            return
        self.first_nodes.append(number)
        self.chains.append(self.forward_parts)
        if len(self.first_nodes) > self.MAX_CHAINS:
            del self.first_nodes[: self.MAX_CHAINS // 2], self.chains[: self.MAX_CHAINS // 2]

    def parts_of_node(self, number: int) -> tuple[int, int, tuple]:
        """The first node of the parts that were open when this thread made this node, one more than their last, and
        these parts (none if that is forgotten)."""
        index = bisect_right(self.first_nodes, number)
        end = self.first_nodes[index] if index < len(self.first_nodes) else sys.maxsize
        return (self.first_nodes[index - 1], end, self.chains[index - 1]) if index else (0, end, ())


class Marker:
    """Opens ranges by an emitter, on the calling thread.

    If a part opens while autograd runs a backward pass on this thread, a checkpoint is computing the part again. Its
    range is inside a range `recomputation` then, and not inside the reopened parts of the checkpoint's node."""

    def __init__(self, emitter: Emitter) -> None:
        self.push, self.pop = emitter
        self.state = MarkerState()

    def part(self, name: str) -> "RangeContext":
        """A context manager: a range for a part of the model. `follow_backward` opens it in the backward pass again."""
        return RangeContext(self.open_part, self.close_part, name)

    def range(self, name: str) -> "RangeContext":
        """A context manager: a range around parts, such as a step or a phase. No backward pass opens it again."""
        return RangeContext(self.push, self.pop, name)

    @uncompiled
    def open_part(self, name: str) -> None:
        """Opens a part. The caller closes it on the same thread, inner parts first, even if something is raised inside:
        a checkpoint ends its second forward pass by an exception (so forward hooks need always_call)."""
        state = self.state
        if not state.forward_parts and is_in_backward():
            # A checkpoint computes again. For the nodes that it makes, the parts of its own node are the outer parts.
            state.suspended_parts = state.forward_parts = state.reopened_parts
            self.reopen(())
            self.push(RECOMPUTATION)
        state.forward_parts = (*state.forward_parts, PartInstance(name))
        self.push(name)
        state.record()

    @uncompiled
    def close_part(self) -> None:
        """Closes the part that this thread opened last."""
        state = self.state
        state.forward_parts = state.forward_parts[:-1]
        self.pop()
        if state.forward_parts == state.suspended_parts:  # its last part was closed, so the recomputation has ended
            self.pop()  # the range `recomputation`
            self.reopen(state.suspended_parts)
            state.suspended_parts, state.forward_parts = None, ()
        state.record()

    @uncompiled
    def reopen(self, chain: tuple) -> None:
        """Makes `chain` the reopened parts of this thread: closes open parts that are not in it, and opens the missing
        ones. So a part gets one range in the backward pass for one in the forward pass, if its nodes run in a row."""
        open_parts = self.state.reopened_parts
        common = common_length(open_parts, chain)
        for _ in open_parts[common:]:
            self.pop()
        for part in chain[common:]:
            self.push(part.name)
        self.state.reopened_parts = chain


class RangeContext:
    __slots__ = ("_close", "_name", "_open")

    def __init__(self, open_range: Callable[[str], object], close_range: Callable[[], object], name: str) -> None:
        self._open, self._close, self._name = open_range, close_range, name

    @uncompiled
    def __enter__(self) -> None:
        self._open(self._name)

    @uncompiled
    def __exit__(self, *error: object) -> None:
        self._close()
