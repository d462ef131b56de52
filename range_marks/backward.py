"""The backward pass by part of the model: each node of autograd runs inside the part whose operation it differentiates.

How: before a backward pass the graph is walked from its roots. A node's number says which part made it (see `marker`),
and a hook on the node opens that part on the thread that runs it, if it is not open already. A part stays open until
a node of another part runs. So what autograd itself launches after a node, sums of gradients and their accumulation in
`.grad`, counts with the node that gave the last summand; PyTorch's profiler, which links backward operations to forward
ones by the same numbers, says the same.

Why so. Identity functions at the ends of a part would have to know its tensors, add nodes and views, and forbid
operations in place. Ranges of `emit_nvtx` name every operation by its number, forward and backward: ten times as many
ranges to record, which whoever reads the capture has to join. A second hook that closes each part after its node
would lose the sums, and cost as many ranges as hooks. A hook before each node needs no kernel, no tensor and no copy,
and relies on no order of the engine, since a node without a part has one too, which closes the part of the node before:
several devices, several threads that call backward, retained graphs and nodes that are left out are all right. What it
costs is the host's time: for 1132 nodes in a step that takes one core 13 ms, 5 ms more, where emit_itt took 4 ms with
nobody there to record its ranges.

What is not known: the parts of nodes that another thread than the one calling backward made (nn.DataParallel), since
every thread counts for itself; and those of a graph that a compiler made, which is one node, of the part around it.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

from range_marks.marker import Chain, Marker, MarkerState
from range_marks.uncompiled import uncompiled, uncompiled_wrapper

UNNUMBERED = 2**64 - 1  # the number of a node that accumulates into .grad: it follows the node that gives the gradient
ENGINE = torch.autograd.Variable._execution_engine
PLAIN = {name: getattr(torch.autograd, name) for name in ("backward", "grad")}  # all that starts a backward pass


def follow_backward(marker: Marker | None) -> None:
    """From now on every backward pass of this process (Tensor.backward, torch.autograd.backward and .grad) opens the
    marker's parts again; with None none does."""
    for name, plain in PLAIN.items():
        setattr(torch.autograd, name, plain if marker is None else _followed(plain, marker))


@contextmanager
def parts_of_backward(marker: Marker, roots: Iterable[Any]) -> Iterator[None]:
    """The backward pass from these tensors (or GradientEdges) runs inside, on whatever threads, and nothing else is
    left open after it. One inside another one's node, by a checkpoint, may be."""
    thread = marker.thread
    before, parts_before = thread.backward, thread.forward
    thread.forward = ()  # a part that opens inside is computed again, and not inside the parts around
    running = _Running(marker, parts_before)
    running.hook_nodes(roots, thread)
    try:
        yield
    finally:
        running.let_go()
        thread.forward = parts_before
        marker.reopen(before)
        for device in running.devices:
            _on_thread_of(device, partial(marker.reopen, ()))


class _HookTensor(threading.local):
    """A tensor that hands dictionaries of hooks to nodes; made once, since making it would show in a profile."""

    def __init__(self) -> None:
        self.hooked = torch.empty(0)


_HOOK_TENSOR = _HookTensor()


class _Running:
    """One backward pass. `devices` are those whose threads, which are not the calling one, opened parts."""

    def __init__(self, marker: Marker, around: Chain) -> None:
        self._marker, self._around = marker, around
        self._caller = threading.get_ident()
        self._hooks: list[dict] = []
        self.devices: set[torch.device] = set()

    @uncompiled
    def hook_nodes(self, roots: Iterable[Any], thread: MarkerState) -> None:
        """Gives every node below the roots a hook that opens the parts in which `thread` made it, less those that are
        open around the backward pass.

        Node.register_prehook would make a dictionary and a handle for each. Here the nodes of a chain share one, handed
        over as Tensor.register_hook does it; so a part also opens, and is empty, where its result is what the pass was
        asked the gradient of. A graph that is retained keeps an empty dictionary of each pass.
        """
        first, after, hooked = 0, 0, _HOOK_TENSOR.hooked
        for number, node in _numbered_nodes(roots):
            if not first <= number < after:  # neighbours in the graph were mostly made in one part
                first, after, chain = thread.made_in(number)
                common = sum(1 for part, other in zip(chain, self._around, strict=False) if part is other)
                hooked._backward_hooks = hooks = {self: partial(self._enter, chain[common:])}
                self._hooks.append(hooks)
            node._register_hook_dict(hooked)

    @uncompiled
    def let_go(self) -> None:
        """The hooks of this pass do nothing any more."""
        for hooks in self._hooks:
            hooks.clear()

    @uncompiled
    def _enter(self, chain: Chain, gradient: Tensor | None) -> None:
        if self._marker.thread.backward is chain:
            return
        if threading.get_ident() != self._caller and gradient is not None:
            self.devices.add(gradient.device)
        self._marker.reopen(chain)


def _numbered_nodes(roots: Iterable[Any]) -> Iterator[tuple[int, Node]]:
    """Every node of the graph below these tensors but those that accumulate, each once, with its number."""
    nodes = [root.grad_fn if isinstance(root, Tensor) else root.node for root in roots]
    nodes = [node for node in nodes if node is not None]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        number = node._sequence_nr()
        if number == UNNUMBERED:
            continue
        yield number, node
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                nodes.append(following)


@uncompiled
def _on_thread_of(device: torch.device, call: Callable[[], None]) -> None:
    """Runs `call` on the thread of autograd that serves a device: as the hook of a node there that computes nothing.

    torch.autograd.backward, which ends in the same call, would first import SymPy to compare the gradient's shape with
    the tensor's: 0.25 s in the middle of the first step (PyTorch 2.11). One that is not given would take a kernel.
    """
    with torch.enable_grad():
        nothing = torch.empty(0, device=device, requires_grad=True).view(0)
    nothing.grad_fn.register_prehook(lambda gradients: call())
    ENGINE.run_backward((nothing,), (nothing.detach(),), False, False, (), allow_unreachable=True, accumulate_grad=True)


def _followed(plain: Callable[..., Any], marker: Marker) -> Callable[..., Any]:
    @wraps(plain)
    def followed(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return plain(*args, **kwargs)
        roots = args[0] if args else kwargs.get("tensors", kwargs.get("outputs"))
        with parts_of_backward(marker, (roots,) if isinstance(roots, (Tensor, GradientEdge)) else roots):
            return plain(*args, **kwargs)

    return uncompiled_wrapper(followed)
