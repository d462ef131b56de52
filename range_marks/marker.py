"""Parts of a model as ranges, and the record of which part made which node of autograd's graph.

Autograd numbers its nodes: every thread counts the nodes that it makes, one by one. So a part is known by the numbers
that the counter had while it was open, and the forward pass only reads the counter where a part opens and closes
(see `backward` for how it is used).

A range is a push/pop range of NVTX, or a record_function of PyTorch's profiler.
"""

import sys
import threading
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import torch
from torch.autograd import _get_sequence_nr as next_number  # the number of the next node of this thread

from range_marks.uncompiled import uncompiled


@dataclass(frozen=True)
class Emitter:
    """How a thread opens a range by its name, and closes the last one that it opened."""

    push: Callable[[str], object]
    pop: Callable[[], object]


def nvtx_emitter() -> Emitter:
    """Push/pop ranges in NVTX's default domain, which nsys records. ModuleNotFoundError without the package nvtx.

    They are lighter than nvtx.annotate, which creates attributes for every range."""
    try:
        import nvtx
    except ModuleNotFoundError as error:
        message = "ranges for nsys need the nvtx package, which is not installed: pip install nvtx"
        raise ModuleNotFoundError(message, name="nvtx") from error
    return Emitter(nvtx.push_range, nvtx.pop_range)


def record_function_emitter(written: Callable[[str], str] = str) -> Emitter:
    """Ranges of PyTorch's own profiler ("user_annotation" in its trace), by what `written` makes of their names."""
    from torch.autograd.profiler import record_function

    thread = _RecordFunctionStack()

    def push(name: str) -> None:
        opened = record_function(written(name))
        opened.__enter__()
        thread.opened.append(opened)

    def pop() -> None:
        thread.opened.pop().__exit__(None, None, None)

    return Emitter(push, pop)


class _RecordFunctionStack(threading.local):
    """The ranges that are open on the calling thread."""

    def __init__(self) -> None:
        self.opened: list = []


RECOMPUTATION = "recomputation"
MOST_CHANGES = 1 << 17  # kept of each thread; the parts of older nodes are forgotten, so that no program grows by this

Chain = tuple["PartInstance", ...]  # parts, each inside the one before


class PartInstance:
    """One call of a part in a forward pass. `chain` holds the parts around it and, last, itself."""

    __slots__ = ("chain", "name")

    def __init__(self, name: str, around: Chain) -> None:
        self.name = name
        self.chain: Chain = (*around, self)


class MarkerState(threading.local):
    """The state of the marker on the calling thread."""

    def __init__(self) -> None:
        self.forward: Chain = ()  # the open parts of a forward pass
        self.backward: Chain = ()  # the parts that are open again, since a node of theirs runs
        self.suspended: Chain | None = None  # those parts while a part of a forward pass is computed again
        # Each chain was open from its number to the next one; numbers ascend.
        self.numbers: list[int] = []
        self.chains: list[Chain] = []

    def record(self) -> None:
        """Notes the open parts for the nodes from the next one on."""
        number = next_number()
        if self.numbers and self.numbers[-1] == number:
            self.chains[-1] = self.forward
            return
        self.numbers.append(number)
        self.chains.append(self.forward)
        if len(self.numbers) > MOST_CHANGES:
            del self.numbers[: MOST_CHANGES // 2], self.chains[: MOST_CHANGES // 2]

    def made_in(self, number: int) -> tuple[int, int, Chain]:
        """(first, end, chain): the parts that were open when this thread made node `number` (() if none), which hold
        for the nodes from first to end - 1."""
        place = bisect_right(self.numbers, number)
        first = self.numbers[place - 1] if place else 0
        after = self.numbers[place] if place < len(self.numbers) else sys.maxsize
        return first, after, self.chains[place - 1] if place else ()


class Marker:
    """Opens ranges by an emitter, on the calling thread.

    A part that opens while autograd runs a backward pass on its thread is computed again, by a checkpoint: its ranges
    are inside a range `recomputation`, and not inside the part whose node requested it.
    """

    def __init__(self, emitter: Emitter, recomputation: str = RECOMPUTATION) -> None:
        self.push, self.pop = emitter.push, emitter.pop
        self._recomputation = recomputation
        self.thread = MarkerState()

    def part(self, name: str) -> "RangeContext":
        """A context manager: a range that is a part of the model. Backward kernels get it too (`follow_backward`)."""
        return RangeContext(self.open_part, self.close_part, name)

    def range(self, name: str) -> "RangeContext":
        """A context manager: a range around parts, such as a step or a phase, which no backward kernel gets again."""
        return RangeContext(self.push, self.pop, name)

    @uncompiled
    def open_part(self, name: str) -> None:
        """Opens a part. Each is closed on its thread, the last one first, whatever is raised inside: a checkpoint ends
        its second forward pass by an exception (so a module's forward hook has to be registered with always_call)."""
        thread = self.thread
        if not thread.forward and torch._C._current_graph_task_id() != -1:
            # The parts of a recomputed graph are inside that of the node which requested it.
            thread.suspended = thread.forward = thread.backward
            self.reopen(())
            self.push(self._recomputation)
        thread.forward = PartInstance(name, thread.forward).chain
        self.push(name)
        thread.record()

    @uncompiled
    def close_part(self) -> None:
        """Closes the part that this thread opened last."""
        thread = self.thread
        thread.forward = thread.forward[:-1]
        self.pop()
        if thread.forward == thread.suspended:
            self.pop()
            self.reopen(thread.suspended)
            thread.suspended, thread.forward = None, ()
        thread.record()

    @uncompiled
    def reopen(self, chain: Chain) -> None:
        """Makes `chain` the reopened parts of this thread: closes parts that are not in it, and opens the others.
        An instance in the forward pass is one instance in the backward pass, as long as its nodes run in a row."""
        thread, opened = self.thread, self.thread.backward
        common = 0
        for part, other in zip(opened, chain, strict=False):
            if part is not other:
                break
            common += 1
        for _ in opened[common:]:
            self.pop()
        for part in chain[common:]:
            self.push(part.name)
        thread.backward = chain


class RangeContext:
    """A range as a context manager."""

    __slots__ = ("_close", "_name", "_open")

    def __init__(self, opening, closing, name: str) -> None:
        self._open, self._close, self._name = opening, closing, name

    @uncompiled
    def __enter__(self) -> None:
        self._open(self._name)

    @uncompiled
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()
