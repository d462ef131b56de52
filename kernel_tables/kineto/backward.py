"""The backward pass by module: each node of autograd belongs to the modules whose operation it differentiates.

A node has the number ("Sequence number") of the operator that made it, which that operator's own event has, too: of
several operators with the number, the one that began last. Every thread counts by itself, and a node names its thread
by a number of PyTorch's own ("Fwd thread id"). Arrows from forward to backward operators show which thread that is
(`fwdbwd`); without them, it is the thread whose operators have most of the numbers.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise, takewhile
from typing import NamedTuple

import numpy as np

from kernel_tables.kineto.modules import ModuleCalls, Nest, by_thread
from kernel_tables.kineto.trace import ARROW, NONE, OPERATOR, TorchTrace

NODE = "autograd::engine::evaluate_function: "
RECOMPUTATION = "recomputation"


class Range(NamedTuple):
    start_ns: int
    end_ns: int
    thread: int
    name: str


def is_node(trace: TorchTrace) -> np.ndarray:
    """Whether each operator is a node of autograd that runs. Older traces have nodes without the engine around them."""
    operators, names = trace[OPERATOR], trace.names.values
    of_engine = [number for number, name in enumerate(names) if name.startswith(NODE)]
    by_name = np.isin(operators["name"], of_engine)
    return by_name if by_name.any() else operators["forward_thread"] > 0


def backward_ranges(trace: TorchTrace, calls: ModuleCalls, passes_end_ns: np.ndarray) -> Iterator[Range]:
    """The ranges of modules in backward passes, and of modules that are computed again there. No range lasts over one
    of `passes_end_ns`, ascending times, between two nodes."""
    operators, node = trace[OPERATOR], is_node(trace)
    sequence, number = _numbers(trace, node)
    module = _module_of_nodes(trace, calls, node, sequence, number)
    again, asked_by = _computed_again(trace, calls, node)
    chains_of = _chains(calls, again, module[asked_by])
    for call in again.tolist():
        yield Range(int(calls.start[call]), int(calls.end[call]), int(calls.thread[call]), RECOMPUTATION)
    for thread, rows in by_thread(operators["thread"], node).items():
        recomputed = again[calls.thread[again] == thread]
        start, end = (
            np.concatenate([of_nodes[rows], of_calls[recomputed]])
            for of_nodes, of_calls in ((operators["start"], calls.start), (operators["end"], calls.end))
        )
        chains = [None if sequence[row] == NONE else chains_of[module[row]] for row in rows.tolist()]
        chains += [()] * len(recomputed)
        yield from _ranges_of_thread(Nest(start, end), chains, passes_end_ns, calls.names, thread)


def _chains(calls: ModuleCalls, again: np.ndarray, asked_by: np.ndarray) -> list[tuple[int, ...]]:
    """By call, the modules of the operations that are differentiated; last, of those in no call. The modules of a call
    that runs `again` are inside those of the node that requested it."""
    chains = [*calls.chains, ()]
    around = dict(zip(again.tolist(), asked_by.tolist(), strict=True))
    for call in sorted(range(len(calls)), key=calls.start.__getitem__) if around else ():
        chain = chains[call]
        place = max((place for place, outer in enumerate(chain) if outer in around), default=None)
        if place is not None:
            chains[call] = chains[around[chain[place]]] + chain[place:]
    return chains


def _follow_siblings(nest: Nest, chains: list[tuple[int, ...] | None]) -> None:
    """Gives an inner node without a chain the chain of the previous node inside the same node. Outermost nodes are not
    changed here, since the previous node may be of another pass."""
    before: dict[int, tuple[int, ...] | None] = {}
    for node in nest.order:
        around = nest.parent[node]
        if around != NONE and chains[node] is None:
            chains[node] = before.get(around, chains[around])
        before[around] = chains[node]


def _ranges_of_thread(
    nest: Nest, chains: list[tuple[int, ...] | None], passes_end_ns: np.ndarray, names: list[str], thread: int
) -> Iterator[Range]:
    """The modules that are reopened on a thread while its nodes run; a node without a chain of modules belongs to the
    previous node."""
    _follow_siblings(nest, chains)
    passes = np.searchsorted(passes_end_ns, nest.times_ns, "right").tolist()
    opened: list[tuple[int, int]] = []  # the calls that are open, outermost first, and since when
    last_ns, last_pass = 0, -1  # of the node before: its end and its pass

    def close(depth: int) -> Iterator[Range]:
        while len(opened) > depth:
            call, since_ns = opened.pop()
            yield Range(since_ns, last_ns, thread, names[call])

    for place, (begin, until) in enumerate(pairwise(nest.times_ns.tolist())):
        node = nest.innermost[place]
        if node == NONE or until == begin:
            continue
        if passes[place] != last_pass and begin > last_ns:
            yield from close(0)
        chain = chains[node]
        if chain is not None:
            pairs = zip(chain, opened, strict=False)
            yield from close(len(list(takewhile(lambda pair: pair[0] == pair[1][0], pairs))))
            opened += [(call, begin) for call in chain[len(opened) :]]
        last_ns, last_pass = until, passes[place + 1]
    yield from close(0)


def _numbers(trace: TorchTrace, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(sequence number, number of the forward thread) of each operator; for a node without numbers, those of what
    the engine calls in it."""
    operators = trace[OPERATOR]
    sequence, number = operators["sequence"].copy(), operators["forward_thread"].copy()
    inner = by_thread(operators["thread"], ~node & (sequence != NONE) & (number > 0))
    for thread, rows in by_thread(operators["thread"], node).items():
        if thread in inner:
            around = Nest(operators["start"][rows], operators["end"][rows]).innermost_at(
                operators["start"][inner[thread]]
            )
            outer, within = rows[around[around != NONE]], inner[thread][around != NONE]
            lacking = sequence[outer] == NONE
            sequence[outer[lacking]], number[outer[lacking]] = sequence[within[lacking]], number[within[lacking]]
    return sequence, number


def _module_of_nodes(
    trace: TorchTrace, calls: ModuleCalls, node: np.ndarray, sequence: np.ndarray, number: np.ndarray
) -> np.ndarray:
    """The innermost call of a module in which each node's operation ran, NONE if there is none."""
    start, thread_of = trace[OPERATOR]["start"], trace[OPERATOR]["thread"]
    forward = by_thread(thread_of, ~node & (sequence != NONE) & (number == 0))
    made = {thread: _last_of_each(sequence[rows], start[rows]) for thread, rows in forward.items()}
    module = np.full(len(sequence), NONE)
    numbered = node & (sequence != NONE)
    linked = _linked_threads(trace, number)
    for thread_number in np.unique(number[numbered]).tolist():
        rows = np.flatnonzero(numbered & (number == thread_number))
        thread = linked.get(thread_number) or _thread_of_most(made, sequence[rows])
        if thread in made:
            numbers, times_ns = made[thread]
            place = np.minimum(np.searchsorted(numbers, sequence[rows]), len(numbers) - 1)
            is_known = numbers[place] == sequence[rows]
            module[rows[is_known]] = calls.innermost_at(thread, times_ns[place[is_known]])
    return module


def _linked_threads(trace: TorchTrace, number: np.ndarray) -> dict[int, int]:
    """The forward thread by PyTorch's own number, from the arrows between forward and backward operators."""
    arrows, operators = trace[ARROW], trace[OPERATOR]
    rows = np.flatnonzero(number > 0)
    keys = zip(operators["thread"][rows].tolist(), operators["start"][rows].tolist(), strict=True)
    number_at = dict(zip(keys, number[rows].tolist(), strict=True))
    begins = arrows["is_begin"] == 1
    _, begin, end = np.intersect1d(arrows["id"][begins], arrows["id"][~begins], return_indices=True)
    ends = zip(*(arrows[name][~begins][end].tolist() for name in ("thread", "start")), strict=True)
    votes: dict[int, Counter[int]] = defaultdict(Counter)
    for place, thread in zip(ends, arrows["thread"][begins][begin].tolist(), strict=True):
        votes[number_at.get(place, NONE)][thread] += 1
    return {of_thread: counts.most_common(1)[0][0] for of_thread, counts in votes.items()}


def _thread_of_most(made: dict[int, tuple[np.ndarray, np.ndarray]], sequence: np.ndarray) -> int | None:
    """The thread that `made` most of the nodes with these numbers."""
    return max(made, key=lambda thread: int(np.isin(sequence, made[thread][0]).sum()), default=None)


def _last_of_each(sequence: np.ndarray, start_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the distinct numbers, when the last operator with each began)"""
    order = np.lexsort((start_ns, sequence))
    is_last = np.append(sequence[order][1:] != sequence[order][:-1], True)[: len(order)]
    return sequence[order][is_last], start_ns[order][is_last]


def _computed_again(trace: TorchTrace, calls: ModuleCalls, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the calls of modules in a node, by a checkpoint, the outermost ones of each node; the row of that node)"""
    operators, none = trace[OPERATOR], np.empty(0, np.int64)
    found_calls, nodes = [none], [none]
    for thread, rows in by_thread(operators["thread"], node).items():
        here = np.flatnonzero(calls.thread == thread)
        around = Nest(operators["start"][rows], operators["end"][rows]).innermost_at(calls.start[here])
        here, around = here[around != NONE], rows[around[around != NONE]]
        parent = calls.parent[here]
        is_outermost = (parent == NONE) | (calls.start[parent] < operators["start"][around])
        found_calls.append(here[is_outermost])
        nodes.append(around[is_outermost])
    return np.concatenate(found_calls), np.concatenate(nodes)
