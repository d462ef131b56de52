"""The backward pass by module: each node of autograd belongs to the modules whose operation it differentiates.

A node has the number ("Sequence number") of the operator that created it. If several operators have that number, the
one that began last created the node. Every thread numbers its operators separately, so a node also names the thread of
that operator, its forward thread, by a number of PyTorch's own ("Fwd thread id"). Arrows between forward and backward
operators (`fwdbwd`) show which thread that is; without them, it is the thread whose operators have most of the numbers.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kernel_tables.kineto.modules import ModuleCalls, Nesting, Range, rows_by_thread
from kernel_tables.kineto.trace import ARROW, NONE, OPERATOR, TorchTrace

NODE = "autograd::engine::evaluate_function: "
RECOMPUTATION = "recomputation"
Chain = tuple[int, ...]  # of calls of modules, outermost first


class NodeNumbers(NamedTuple):
    """By operator: its sequence number, NONE without one; and PyTorch's number of its forward thread, 0 without one."""

    sequence: np.ndarray
    forward_thread: np.ndarray


class Recomputations(NamedTuple):
    """Calls of modules in nodes, since a checkpoint computes them again: the outermost calls, and the row of the node
    in which each ran."""

    calls: np.ndarray
    node_rows: np.ndarray


class Creators(NamedTuple):
    """The sequence numbers of the operators of a thread, ascending, and when the last operator with each began."""

    sequence: np.ndarray
    start_ns: np.ndarray


def node_mask(trace: TorchTrace) -> np.ndarray:
    """By operator: whether it is a node of autograd. Older traces have nodes without the engine around them."""
    operators, names = trace[OPERATOR], trace.names.values
    engine_names = [number for number, name in enumerate(names) if name.startswith(NODE)]
    is_in_engine = np.isin(operators["name"], engine_names)
    return is_in_engine if is_in_engine.any() else operators["forward_thread"] > 0


def backward_ranges(trace: TorchTrace, calls: ModuleCalls, passes_end_ns: np.ndarray) -> Iterator[Range]:
    """The ranges of modules in backward passes, and of modules that are recomputed there. A range may last over several
    nodes, unless one of `passes_end_ns` (ascending) lies between these."""
    operators, is_node = trace[OPERATOR], node_mask(trace)
    numbers = _node_numbers(trace, is_node)
    forward_call = _forward_calls(trace, calls, is_node, numbers)
    recomputed = _recomputations(trace, calls, is_node)
    chains = _backward_chains(calls, recomputed.calls, forward_call[recomputed.node_rows])
    for call in recomputed.calls.tolist():
        yield calls.range_of(call, RECOMPUTATION)
    for thread, rows in rows_by_thread(operators["thread"], is_node).items():
        thread_calls = recomputed.calls[calls.thread[recomputed.calls] == thread]
        start_ns = np.concatenate([operators["start"][rows], calls.start[thread_calls]])
        end_ns = np.concatenate([operators["end"][rows], calls.end[thread_calls]])
        has_number, node_calls = numbers.sequence[rows] != NONE, forward_call[rows].tolist()
        node_chains = [chains[call] if known else None for call, known in zip(node_calls, has_number, strict=True)]
        node_chains += [()] * len(thread_calls)  # recomputed calls count as nodes that belong to no module
        yield from _thread_ranges(Nesting(start_ns, end_ns), node_chains, passes_end_ns, calls.names, thread)


def _backward_chains(calls: ModuleCalls, recomputed: np.ndarray, requesters: np.ndarray) -> dict[int, Chain]:
    """By call, the chain of calls to which the nodes of its operations belong; for operations in no call, () at NONE.

    The chain of a recomputed call continues that of its requester, the forward call of the node in which it ran.
    `requesters` has one for each of `recomputed`, NONE if that node has none.
    """
    chains = dict(enumerate(calls.chains)) | {NONE: ()}
    requester = dict(zip(recomputed.tolist(), requesters.tolist(), strict=True))
    for call in np.argsort(calls.start, kind="stable").tolist():  # a requester comes before what it recomputes
        chain = chains[call]
        recomputed_depths = [depth for depth, outer in enumerate(chain) if outer in requester]
        if recomputed_depths:
            depth = recomputed_depths[-1]
            chains[call] = chains[requester[chain[depth]]] + chain[depth:]
    return chains


def _with_chains_of_siblings(nesting: Nesting, chains: list[Chain | None]) -> list[Chain | None]:
    """The chains, also for inner nodes without one: an inner node gets the chain of the previous node inside the same
    outer node, or else that of the outer node. An outermost node gets none here, since the previous one may be in
    another pass."""
    chains = list(chains)
    previous_chain: dict[int, Chain | None] = {}  # by outer node
    for node in nesting.order:
        parent = nesting.parent[node]
        if parent != NONE and chains[node] is None:
            chains[node] = previous_chain.get(parent, chains[parent])
        previous_chain[parent] = chains[node]
    return chains


def _thread_ranges(
    nesting: Nesting, chains: list[Chain | None], passes_end_ns: np.ndarray, names: list[str], thread: int
) -> Iterator[Range]:
    """The ranges of the modules to which the nodes of a thread belong, while these nodes run. A node without a chain
    belongs to the modules of the previous node."""
    chains = _with_chains_of_siblings(nesting, chains)
    passes = np.searchsorted(passes_end_ns, nesting.times_ns, "right").tolist()
    open_since_ns: dict[int, int] = {}  # by call, outermost first
    last_ns, last_pass = 0, -1  # the end and the pass of the previous node

    def close(depth: int) -> Iterator[Range]:
        while len(open_since_ns) > depth:
            call, since_ns = open_since_ns.popitem()
            yield Range(since_ns, last_ns, thread, names[call])

    for index, (begin_ns, end_ns) in enumerate(pairwise(nesting.times_ns.tolist())):
        node = nesting.innermost[index]
        if node == NONE or end_ns == begin_ns:
            continue
        if passes[index] != last_pass and begin_ns > last_ns:
            yield from close(0)
        chain = chains[node]
        if chain is not None:
            is_equal = [open_call == call for open_call, call in zip(open_since_ns, chain, strict=False)]
            common_depth = [*is_equal, False].index(False)  # how many calls stay open: up to the first that differs
            yield from close(common_depth)
            open_since_ns |= dict.fromkeys(chain[common_depth:], begin_ns)
        last_ns, last_pass = end_ns, passes[index + 1]
    yield from close(0)


def _node_numbers(trace: TorchTrace, is_node: np.ndarray) -> NodeNumbers:
    """The numbers of each operator. A node without numbers gets those of the operator that the engine calls in it."""
    operators = trace[OPERATOR]
    sequence, forward_thread = operators["sequence"].copy(), operators["forward_thread"].copy()
    numbered = rows_by_thread(operators["thread"], ~is_node & (sequence != NONE) & (forward_thread > 0))
    for thread, rows in rows_by_thread(operators["thread"], is_node).items():
        inner = numbered.get(thread, np.empty(0, np.int64))
        index = Nesting(operators["start"][rows], operators["end"][rows]).innermost_at(operators["start"][inner])
        inner, outer = inner[index != NONE], rows[index[index != NONE]]
        inner, outer = inner[sequence[outer] == NONE], outer[sequence[outer] == NONE]
        sequence[outer], forward_thread[outer] = sequence[inner], forward_thread[inner]
    return NodeNumbers(sequence, forward_thread)


def _forward_calls(trace: TorchTrace, calls: ModuleCalls, is_node: np.ndarray, numbers: NodeNumbers) -> np.ndarray:
    """By operator. For a node, the innermost call of a module around the operator that the node differentiates; NONE
    for nodes without one, and for all operators that are no nodes."""
    operators, sequence = trace[OPERATOR], numbers.sequence
    forward = rows_by_thread(operators["thread"], ~is_node & (sequence != NONE) & (numbers.forward_thread == 0))
    creators = {thread: _creators(sequence[rows], operators["start"][rows]) for thread, rows in forward.items()}
    forward_call = np.full(len(sequence), NONE)
    is_numbered = is_node & (sequence != NONE)
    linked = _linked_threads(trace, numbers.forward_thread)
    for thread_number in np.unique(numbers.forward_thread[is_numbered]).tolist():
        rows = np.flatnonzero(is_numbered & (numbers.forward_thread == thread_number))
        thread = linked.get(thread_number) or _thread_of_most_numbers(creators, sequence[rows])
        if thread in creators:
            created, start_ns = creators[thread]
            index = np.minimum(np.searchsorted(created, sequence[rows]), len(created) - 1)
            is_known = created[index] == sequence[rows]
            forward_call[rows[is_known]] = calls.innermost_at(thread, start_ns[index[is_known]])
    return forward_call


def _linked_threads(trace: TorchTrace, forward_thread: np.ndarray) -> dict[int, int]:
    """The global id of the forward thread by PyTorch's number, from arrows between forward and backward operators."""
    operators = trace[OPERATOR]
    rows = np.flatnonzero(forward_thread > 0)
    # An arrow does not name the operator at its head, but its thread and time.
    beginnings = zip(operators["thread"][rows].tolist(), operators["start"][rows].tolist(), strict=True)
    number_of_beginning = dict(zip(beginnings, forward_thread[rows].tolist(), strict=True))
    is_tail = trace[ARROW]["is_begin"] == 1
    tails, heads = ({name: column[mask] for name, column in trace[ARROW].items()} for mask in (is_tail, ~is_tail))
    _, tail, head = np.intersect1d(tails["id"], heads["id"], return_indices=True)
    pointed_at = zip(heads["thread"][head].tolist(), heads["start"][head].tolist(), strict=True)
    votes: dict[int, Counter[int]] = defaultdict(Counter)  # by PyTorch's number; at NONE, of arrows to no such operator
    for beginning, forward_thread_id in zip(pointed_at, tails["thread"][tail].tolist(), strict=True):
        votes[number_of_beginning.get(beginning, NONE)][forward_thread_id] += 1
    return {number: counts.most_common(1)[0][0] for number, counts in votes.items()}


def _thread_of_most_numbers(creators: dict[int, Creators], sequence: np.ndarray) -> int | None:
    """The thread whose operators have most of these numbers; None if there are no threads."""
    return max(creators, key=lambda thread: int(np.isin(sequence, creators[thread].sequence).sum()), default=None)


def _creators(sequence: np.ndarray, start_ns: np.ndarray) -> Creators:
    order = np.lexsort((start_ns, sequence))
    is_last = np.append(sequence[order][1:] != sequence[order][:-1], True)[: len(order)]
    return Creators(sequence[order][is_last], start_ns[order][is_last])


def _recomputations(trace: TorchTrace, calls: ModuleCalls, is_node: np.ndarray) -> Recomputations:
    operators, nothing = trace[OPERATOR], np.empty(0, np.int64)
    recomputations = [Recomputations(nothing, nothing)]  # of each thread, after one that is there without threads, too
    for thread, rows in rows_by_thread(operators["thread"], is_node).items():
        thread_calls = np.flatnonzero(calls.thread == thread)
        index = Nesting(operators["start"][rows], operators["end"][rows]).innermost_at(calls.start[thread_calls])
        inner, outer = thread_calls[index != NONE], rows[index[index != NONE]]
        parent = calls.parent[inner]
        is_outermost = (parent == NONE) | (calls.start[parent] < operators["start"][outer])
        recomputations.append(Recomputations(inner[is_outermost], outer[is_outermost]))
    return Recomputations(*map(np.concatenate, zip(*recomputations, strict=True)))
