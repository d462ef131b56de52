"""The backward pass by part of the model: each node of autograd runs inside the part whose operation it differentiates.

How: before a backward pass the graph is walked from its roots. A node's number says which part made it (see `marker`),
and a hook on the node opens that part on the thread that runs it, if it is not open already. A part stays open until
a node of another part runs. After a node, autograd itself may launch sums of gradients and their accumulation in
`.grad`. These count with the node that gave the last summand, as in PyTorch's profiler, which links backward operations
to forward ones by the same numbers.

A hook before each node needs no kernel, no tensor and no copy. It does not rely on the order in which the engine runs
nodes, since nodes without a part have a hook, too, which closes the part of the node before. So it works with several
devices, several threads that call backward, retained graphs, and nodes that are skipped. It costs time of the host:
1132 nodes prolong a step of 13 ms on one core by 5 ms. What else was considered:

- Identity functions at the ends of a part would have to know its tensors, add nodes and views, and forbid operations in
  place.
- Ranges of `emit_nvtx` name every operation by its number, forward and backward. There are ten times as many, and
  whoever reads the capture has to join them. (emit_itt prolongs the step by 4 ms, even if no profiler records.)
- A second hook that closes each part after its node would lose the sums, and would cost as many ranges as hooks.

Two kinds of parts are not known. Every thread numbers its own nodes, so those that another thread than the one calling
backward made have no part (nn.DataParallel). A compiled graph is one node, which belongs to the part around it.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

from range_marks.marker import Chain, Marker, MarkerState, common_length
from range_marks.uncompiled import uncompiled, uncompiled_wrapper

UNNUMBERED = 2**64 - 1  # number of all nodes that accumulate into .grad; they count with the node that ran before
ENGINE = torch.autograd.Variable._execution_engine
ORIGINAL_FUNCTIONS = {name: getattr(torch.autograd, name) for name in ("backward", "grad")}  # they start passes


def follow_backward(marker: Marker | None) -> None:
    """From now on every backward pass of this process (by Tensor.backward, torch.autograd.backward or
    torch.autograd.grad) opens the marker's parts again; with None, no pass does."""
    for name, original in ORIGINAL_FUNCTIONS.items():
        setattr(torch.autograd, name, original if marker is None else _reopening_parts(original, marker))


@contextmanager
def _parts_of_backward(marker: Marker, roots: Iterable[Any]) -> Iterator[None]:
    """A block in which the backward pass from these tensors (or GradientEdges) opens parts, on each thread that it
    uses; its end closes all. A checkpoint enters such a block inside the node of another backward pass."""
    state = marker.state
    reopened_before, forward_before = state.reopened_parts, state.forward_parts
    state.forward_parts = ()  # so that a part that a checkpoint computes again is not inside those around this block
    backward_pass = _BackwardPass(marker, forward_before)
    backward_pass.hook_nodes(roots, state)
    try:
        yield
    finally:
        backward_pass.disable_hooks()
        state.forward_parts = forward_before
        marker.reopen(reopened_before)
        for device in backward_pass.devices:
            _run_on_thread_of(device, partial(marker.reopen, ()))


class _HookTensor(threading.local):
    """A tensor by which nodes get their hooks. A thread makes it once, since making it would show in a profile."""

    def __init__(self) -> None:
        self.tensor = torch.empty(0)


_HOOK_TENSOR = _HookTensor()


class _BackwardPass:
    """One backward pass, called inside the open forward parts `surrounding`. Autograd may run nodes on other threads
    than the calling one, one for each device: `devices` are those on whose threads parts were opened."""

    def __init__(self, marker: Marker, surrounding: Chain) -> None:
        self._marker, self._surrounding = marker, surrounding
        self._calling_thread = threading.get_ident()
        self._hooks: list[dict] = []
        self.devices: set[torch.device] = set()

    @uncompiled
    def hook_nodes(self, roots: Iterable[Any], state: MarkerState) -> None:
        """Gives every node below the roots a hook. It opens the parts in which the thread of `state` made the node,
        except those that are open around the backward pass.

        Node.register_prehook would make a dictionary and a handle for each node. Here nodes of the same parts share a
        dictionary, handed over as Tensor.register_hook does it. As a side effect, a part opens without any kernel if
        the gradient of its result was asked for. A retained graph keeps an empty dictionary of each pass.
        """
        first, end, tensor = 0, 0, _HOOK_TENSOR.tensor
        for number, node in _numbered_nodes(roots):
            if not first <= number < end:  # else the same parts as of the node before, which is the usual case
                first, end, chain = state.parts_of_node(number)
                common = common_length(chain, self._surrounding)
                tensor._backward_hooks = hooks = {self: partial(self._enter, chain[common:])}
                self._hooks.append(hooks)
            node._register_hook_dict(tensor)

    @uncompiled
    def disable_hooks(self) -> None:
        """Makes the hooks of this pass do nothing."""
        for hooks in self._hooks:
            hooks.clear()

    @uncompiled
    def _enter(self, chain: Chain, gradient: Tensor | None) -> None:
        if self._marker.state.reopened_parts is chain:
            return
        if threading.get_ident() != self._calling_thread and gradient is not None:
            self.devices.add(gradient.device)
        self._marker.reopen(chain)


def _numbered_nodes(roots: Iterable[Any]) -> Iterator[tuple[int, Node]]:
    """The number and node of all nodes of the graph below these tensors, except those that accumulate into .grad."""
    nodes = [root.grad_fn if isinstance(root, Tensor) else root.node for root in roots]
    nodes = [node for node in nodes if node is not None]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        number = node._sequence_nr()
        if number == UNNUMBERED:
            continue
        yield number, node
        for next_node, _ in node.next_functions:
            if next_node is not None and next_node not in seen:
                seen.add(next_node)
                nodes.append(next_node)


@uncompiled
def _run_on_thread_of(device: torch.device, call: Callable[[], None]) -> None:
    """Runs `call` on the thread of autograd that serves a device: as the hook of a node there that computes nothing.

    The engine is called directly. torch.autograd.backward would first import SymPy to compare the gradient's shape with
    the tensor's: 0.25 s in the middle of the first step (PyTorch 2.11). The gradient is the empty tensor itself, since
    making another one would take a kernel.
    """
    with torch.enable_grad():
        empty = torch.empty(0, device=device, requires_grad=True).view(0)
    empty.grad_fn.register_prehook(lambda gradients: call())
    ENGINE.run_backward((empty,), (empty.detach(),), False, False, (), allow_unreachable=True, accumulate_grad=True)


def _reopening_parts(original: Callable[..., Any], marker: Marker) -> Callable[..., Any]:
    """The function `original` of torch.autograd, whose backward passes now open the marker's parts."""

    @wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*args, **kwargs)
        # `tensors` of torch.autograd.backward, `outputs` of torch.autograd.grad
        roots = args[0] if args else kwargs.get("tensors", kwargs.get("outputs"))
        with _parts_of_backward(marker, (roots,) if isinstance(roots, (Tensor, GradientEdge)) else roots):
            return original(*args, **kwargs)

    return uncompiled_wrapper(wrapper)
