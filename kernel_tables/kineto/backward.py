"""The backward pass by module: each node of autograd belongs to the modules whose operation it differentiates.

A node has the number ("Sequence number") of the operator that created it. If several operators have that number, the
one that began last created the node. Every thread counts separately, and a node names its forward thread by a number
of PyTorch's own ("Fwd thread id"). Arrows between forward and backward operators (`fwdbwd`) show which thread that is;
without them, it is the thread whose operators have most of the numbers.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise, takewhile
from typing import NamedTuple

import numpy as np

from kernel_tables.kineto.modules import ModuleCalls, Nesting, Range, rows_by_thread
from kernel_tables.kineto.trace import ARROW, NONE, OPERATOR, TorchTrace

NODE = "autograd::engine::evaluate_function: "
RECOMPUTATION = "recomputation"
Chain = tuple[int, ...]  # of calls of modules, outermost first


class NodeNumbers(NamedTuple):
    """By operator: its sequence number (NONE without one), and PyTorch's number of its forward thread (0 without)."""

    sequence: np.ndarray
    forward_thread: np.ndarray


class Recomputations(NamedTuple):
    """The outermost calls of modules that ran inside nodes, for a checkpoint, and the row of the node of each."""

    calls: np.ndarray
    nodes: np.ndarray


class Creators(NamedTuple):
    """The sequence numbers of the operators of a thread, ascending, and when the last operator with each began."""

    sequence: np.ndarray
    start_ns: np.ndarray


def is_node(trace: TorchTrace) -> np.ndarray:
    """Whether each operator is a node of autograd. Older traces have nodes without the engine around them."""
    operators, names = trace[OPERATOR], trace.names.values
    engine_names = [number for number, name in enumerate(names) if name.startswith(NODE)]
    by_name = np.isin(operators["name"], engine_names)
    return by_name if by_name.any() else operators["forward_thread"] > 0


def backward_ranges(trace: TorchTrace, calls: ModuleCalls, passes_end_ns: np.ndarray) -> Iterator[Range]:
    """The ranges of modules in backward passes, and of modules that are recomputed there. Between two nodes, no range
    lasts beyond one of `passes_end_ns`, ascending times."""
    operators, nodes = trace[OPERATOR], is_node(trace)
    numbers = _node_numbers(trace, nodes)
    call_of_node = _forward_calls(trace, calls, nodes, numbers)
    recomputed = _recomputations(trace, calls, nodes)
    chains = _backward_chains(calls, recomputed.calls, call_of_node[recomputed.nodes])
    for call in recomputed.calls.tolist():
        yield calls.range_of(call, RECOMPUTATION)
    for thread, rows in rows_by_thread(operators["thread"], nodes).items():
        thread_calls = recomputed.calls[calls.thread[recomputed.calls] == thread]
        start_ns = np.concatenate([operators["start"][rows], calls.start[thread_calls]])
        end_ns = np.concatenate([operators["end"][rows], calls.end[thread_calls]])
        node_chains = [None if numbers.sequence[row] == NONE else chains[call_of_node[row]] for row in rows.tolist()]
        node_chains += [()] * len(thread_calls)
        yield from _thread_ranges(Nesting(start_ns, end_ns), node_chains, passes_end_ns, calls.names, thread)


def _backward_chains(calls: ModuleCalls, recomputed: np.ndarray, requesters: np.ndarray) -> list[Chain]:
    """By call, the chain of calls in which its operations are differentiated; last, () for operations in no call.

    The chain of a recomputed call is inside that of the node that requested it; `requesters` has that node's forward
    call for each of `recomputed`.
    """
    chains = [*calls.chains, ()]
    requester = dict(zip(recomputed.tolist(), requesters.tolist(), strict=True))
    for call in sorted(range(len(calls)), key=calls.start.__getitem__) if requester else ():
        chain = chains[call]
        depth = max((depth for depth, outer in enumerate(chain) if outer in requester), default=None)
        if depth is not None:
            chains[call] = chains[requester[chain[depth]]] + chain[depth:]
    return chains


def _follow_siblings(nesting: Nesting, chains: list[Chain | None]) -> None:
    """Gives an inner node without a chain that of the previous node inside the same node, or else of the node around
    it. Outermost nodes are not changed here, since the previous node may be in another pass."""
    previous_chain: dict[int, Chain | None] = {}
    for node in nesting.order:
        parent = nesting.parent[node]
        if parent != NONE and chains[node] is None:
            chains[node] = previous_chain.get(parent, chains[parent])
        previous_chain[parent] = chains[node]


def _thread_ranges(
    nesting: Nesting, chains: list[Chain | None], passes_end_ns: np.ndarray, names: list[str], thread: int
) -> Iterator[Range]:
    """The modules that are open on a thread while its nodes run; a node without a chain belongs to the modules of the
    previous node."""
    _follow_siblings(nesting, chains)
    passes = np.searchsorted(passes_end_ns, nesting.times_ns, "right").tolist()
    open_calls: list[tuple[int, int]] = []  # outermost first: the call, and when it was opened
    last_ns, last_pass = 0, -1  # the end and the pass of the previous node

    def close(depth: int) -> Iterator[Range]:
        while len(open_calls) > depth:
            call, since_ns = open_calls.pop()
            yield Range(since_ns, last_ns, thread, names[call])

    for index, (begin_ns, end_ns) in enumerate(pairwise(nesting.times_ns.tolist())):
        node = nesting.innermost[index]
        if node == NONE or end_ns == begin_ns:
            continue
        if passes[index] != last_pass and begin_ns > last_ns:
            yield from close(0)
        chain = chains[node]
        if chain is not None:
            pairs = zip(chain, open_calls, strict=False)
            yield from close(len(list(takewhile(lambda pair: pair[0] == pair[1][0], pairs))))
            open_calls += [(call, begin_ns) for call in chain[len(open_calls) :]]
        last_ns, last_pass = end_ns, passes[index + 1]
    yield from close(0)


def _node_numbers(trace: TorchTrace, nodes: np.ndarray) -> NodeNumbers:
    """The numbers of each operator; of a node without numbers, those of the operator that the engine calls in it."""
    operators = trace[OPERATOR]
    sequence, forward_thread = operators["sequence"].copy(), operators["forward_thread"].copy()
    numbered = rows_by_thread(operators["thread"], ~nodes & (sequence != NONE) & (forward_thread > 0))
    for thread, rows in rows_by_thread(operators["thread"], nodes).items():
        inner = numbered.get(thread, np.empty(0, np.int64))
        index = Nesting(operators["start"][rows], operators["end"][rows]).innermost_at(operators["start"][inner])
        inner, outer = inner[index != NONE], rows[index[index != NONE]]
        inner, outer = inner[sequence[outer] == NONE], outer[sequence[outer] == NONE]
        sequence[outer], forward_thread[outer] = sequence[inner], forward_thread[inner]
    return NodeNumbers(sequence, forward_thread)


def _forward_calls(trace: TorchTrace, calls: ModuleCalls, nodes: np.ndarray, numbers: NodeNumbers) -> np.ndarray:
    """By operator: for a node, the innermost call of a module in which the operator ran that it differentiates; NONE
    for nodes without one, and for other operators."""
    operators, sequence = trace[OPERATOR], numbers.sequence
    forward = rows_by_thread(operators["thread"], ~nodes & (sequence != NONE) & (numbers.forward_thread == 0))
    creators = {thread: _creators(sequence[rows], operators["start"][rows]) for thread, rows in forward.items()}
    call_of_node = np.full(len(sequence), NONE)
    numbered = nodes & (sequence != NONE)
    linked = _linked_threads(trace, numbers.forward_thread)
    for thread_number in np.unique(numbers.forward_thread[numbered]).tolist():
        rows = np.flatnonzero(numbered & (numbers.forward_thread == thread_number))
        thread = linked.get(thread_number) or _thread_with_most(creators, sequence[rows])
        if thread in creators:
            known, start_ns = creators[thread]
            index = np.minimum(np.searchsorted(known, sequence[rows]), len(known) - 1)
            is_known = known[index] == sequence[rows]
            call_of_node[rows[is_known]] = calls.innermost_at(thread, start_ns[index[is_known]])
    return call_of_node


def _linked_threads(trace: TorchTrace, forward_thread: np.ndarray) -> dict[int, int]:
    """The global id of the forward thread by PyTorch's number, from arrows between forward and backward operators."""
    arrows, operators = trace[ARROW], trace[OPERATOR]
    rows = np.flatnonzero(forward_thread > 0)
    keys = zip(operators["thread"][rows].tolist(), operators["start"][rows].tolist(), strict=True)
    number_at = dict(zip(keys, forward_thread[rows].tolist(), strict=True))
    is_begin = arrows["is_begin"] == 1
    _, begin, end = np.intersect1d(arrows["id"][is_begin], arrows["id"][~is_begin], return_indices=True)
    ends = zip(*(arrows[name][~is_begin][end].tolist() for name in ("thread", "start")), strict=True)
    votes: dict[int, Counter[int]] = defaultdict(Counter)
    for key, thread in zip(ends, arrows["thread"][is_begin][begin].tolist(), strict=True):
        votes[number_at.get(key, NONE)][thread] += 1
    return {number: counts.most_common(1)[0][0] for number, counts in votes.items()}


def _thread_with_most(creators: dict[int, Creators], sequence: np.ndarray) -> int | None:
    """The thread whose operators have most of these numbers; None if there are no threads."""
    return max(creators, key=lambda thread: int(np.isin(sequence, creators[thread].sequence).sum()), default=None)


def _creators(sequence: np.ndarray, start_ns: np.ndarray) -> Creators:
    order = np.lexsort((start_ns, sequence))
    is_last = np.append(sequence[order][1:] != sequence[order][:-1], True)[: len(order)]
    return Creators(sequence[order][is_last], start_ns[order][is_last])


def _recomputations(trace: TorchTrace, calls: ModuleCalls, nodes: np.ndarray) -> Recomputations:
    operators, nothing = trace[OPERATOR], np.empty(0, np.int64)
    parts = [Recomputations(nothing, nothing)]
    for thread, rows in rows_by_thread(operators["thread"], nodes).items():
        thread_calls = np.flatnonzero(calls.thread == thread)
        index = Nesting(operators["start"][rows], operators["end"][rows]).innermost_at(calls.start[thread_calls])
        inner, outer = thread_calls[index != NONE], rows[index[index != NONE]]
        parent = calls.parent[inner]
        is_outermost = (parent == NONE) | (calls.start[parent] < operators["start"][outer])
        parts.append(Recomputations(inner[is_outermost], outer[is_outermost]))
    return Recomputations(*map(np.concatenate, zip(*parts, strict=True)))
