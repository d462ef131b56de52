"""The backward pass by part of the model: each node of autograd runs inside the part whose operation it differentiates.

Before a backward pass the graph is walked from its roots. A node's number says which part made it (see `marker`), and a
hook on the node opens that part on the thread that runs it, if it is not open already. A part stays open until a node
of another part runs. After a node, autograd itself may launch sums of gradients and their accumulation in `.grad`;
these count with the node that gave the last summand, as in PyTorch's profiler.

A hook before each node needs no kernel, no tensor and no copy, and does not rely on the order in which the engine runs
nodes. So it works with several devices, several threads that call backward, retained graphs, and nodes that are
skipped. It costs time of the host: 1132 nodes prolong a step of 13 ms on one core by 5 ms.

Every thread numbers its own nodes, so those that another thread than the one calling backward made have no part
(nn.DataParallel). A compiled graph is one node, which belongs to the part around it.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

from kernel_tables.marks.marker import Marker, common_length, uncompiled

_originals: dict[str, Callable[..., Any]] = {}  # functions of torch.autograd that `follow_backward` has replaced


def follow_backward(marker: Marker | None, name: str | None = None) -> None:
    """From now on every backward pass of this process (by Tensor.backward, torch.autograd.backward or
    torch.autograd.grad) opens the marker's parts again; with a `name`, inside a range of that name for each call of
    `backward`. With None instead of a marker, no pass does, and PyTorch is as it was."""
    for function, original in _originals.items():
        setattr(torch.autograd, function, original)
    _originals.clear()
    if marker is not None:
        _BackwardPass.local.tensor = torch.empty(0)
        for function in ("backward", "grad"):
            _originals[function] = original = getattr(torch.autograd, function)
            around = name if function == "backward" else None
            setattr(torch.autograd, function, _reopening_parts(original, marker, around))


def _reopening_parts(original: Callable[..., Any], marker: Marker, name: str | None) -> Callable[..., Any]:
    """The function `original` of torch.autograd, whose backward passes now open the marker's parts."""

    @wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*args, **kwargs)
        # `tensors` of torch.autograd.backward, `outputs` of torch.autograd.grad
        roots = args[0] if args else kwargs.get("tensors", kwargs.get("outputs"))
        around = nullcontext() if name is None else marker.range(name)
        with around, _BackwardPass(marker, (roots,) if isinstance(roots, (Tensor, GradientEdge)) else roots):
            return original(*args, **kwargs)

    return uncompiled(wrapper, with_calls=False)


class _BackwardPass:
    """A block in which the backward pass from these roots opens parts, on each thread that it uses: autograd may run
    nodes on other threads than the calling one, one for each device. Its end closes all. A checkpoint enters such a
    block inside the node of another backward pass."""

    local = threading.local()  # `tensor`, by which nodes get their hooks: made once, since that would show in a profile

    def __init__(self, marker: Marker, roots: Iterable[Any]) -> None:
        self.marker, self.roots = marker, roots
        self.calling_thread = threading.get_ident()
        self.hooks: list[dict] = []
        self.devices: set[torch.device] = set()  # on whose threads parts were opened

    @uncompiled
    def __enter__(self) -> None:
        state = self.marker.state
        self.reopened_before, self.surrounding = state.reopened_parts, state.forward_parts
        state.forward_parts = ()  # what a checkpoint computes again is not inside the parts around this block
        self._hook_nodes()

    @uncompiled
    def __exit__(self, *error: object) -> None:
        for hooks in self.hooks:
            hooks.clear()  # they do nothing from now on
        self.marker.state.forward_parts = self.surrounding
        self.marker.reopen(self.reopened_before)
        for device in self.devices:
            run_on_thread_of(device, partial(self.marker.reopen, ()))

    def _hook_nodes(self) -> None:
        """Gives every node below the roots a hook. It opens the parts in which the calling thread made the node, except
        those that are open around the backward pass.

        Node.register_prehook would make a dictionary and a handle for each node. Here nodes of the same parts share a
        dictionary, handed over as Tensor.register_hook does it. As a side effect, a part opens without any kernel if
        the gradient of its result was asked for. A retained graph keeps an empty dictionary of each pass."""
        if not hasattr(self.local, "tensor"):
            self.local.tensor = torch.empty(0)
        first, end, tensor = 0, 0, self.local.tensor
        for number, node in self._numbered_nodes():
            if not first <= number < end:  # else the same parts as of the node before, which is the usual case
                first, end, chain = self.marker.state.parts_of_node(number)
                inner = chain[common_length(chain, self.surrounding) :]
                tensor._backward_hooks = hooks = {self: partial(self._open_parts, inner)}
                self.hooks.append(hooks)
            node._register_hook_dict(tensor)

    def _numbered_nodes(self) -> Iterator[tuple[int, Node]]:
        """Numbers and nodes below the roots; those that accumulate in .grad count with the one before."""
        nodes = [root.grad_fn if isinstance(root, Tensor) else root.node for root in self.roots]
        nodes = [node for node in nodes if node is not None]
        seen = set(nodes)
        while nodes:
            node = nodes.pop()
            number = node._sequence_nr()
            if number == 2**64 - 1:  # of all nodes that accumulate
                continue
            yield number, node
            for next_node, _ in node.next_functions:
                if next_node is not None and next_node not in seen:
                    seen.add(next_node)
                    nodes.append(next_node)

    @uncompiled
    def _open_parts(self, chain: tuple, gradient: Tensor | None) -> None:
        if self.marker.state.reopened_parts is chain:
            return
        if threading.get_ident() != self.calling_thread:
            tensors = self.roots if gradient is None else (gradient,)  # a compiled graph's first output may have none
            self.devices.update(tensor.device for tensor in tensors if isinstance(tensor, Tensor))
        self.marker.reopen(chain)


@uncompiled
def run_on_thread_of(device: torch.device, call: Callable[[], None]) -> None:
    """Runs `call` on the thread of autograd that serves a device: as the hook of a node there that computes nothing.

    The engine is called directly. torch.autograd.backward would first import SymPy to compare the gradient's shape with
    the tensor's: 0.25 s in the middle of the first step (PyTorch 2.11). The gradient is the empty tensor itself, since
    making another one would take a kernel."""
    with torch.enable_grad():
        empty = torch.empty(0, device=device, requires_grad=True).view(0)
    empty.grad_fn.register_prehook(lambda gradients: call())
    run = torch.autograd.Variable._execution_engine.run_backward
    run((empty,), (empty.detach(),), False, False, (), allow_unreachable=True, accumulate_grad=True)
