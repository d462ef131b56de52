"""The ranges of a trace: annotations of the program, and what the trace implies: modules, the backward pass, operators.

A trace with stacks has an event for each call of a module, `nn.Module: Block_3`. The backward pass runs nodes of
autograd: each belongs to the modules whose operation it differentiates. A node has the number ("Sequence number") of
the operator that created it; if several operators have that number, the one that began last created the node. Threads
number their operators separately, so a node also names its forward thread, by a number of PyTorch's own; arrows
(`fwdbwd`) show which thread that is, else it is the one whose operators have most of the numbers.
"""

import json
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np

from kernel_tables.capture import NONE

HOST_KINDS = ("annotation", "function", "operator")
MODULE, AUTOGRAD, NODE = "nn.Module: ", "torch/autograd/__init__.py(", "autograd::engine::evaluate_function: "
BACKWARD, STEP, RECOMPUTATION, GLOO = "backward", "step", "recomputation", "gloo:"
PROFILER_STEP = re.compile(r"ProfilerStep#\d+")
NOT_OF_CLASS = re.compile(r"_\d+$|^FSDP(?=[A-Z])")  # fully_shard renames the class Block to FSDPBlock
WRAPPERS = {
    "DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule", "CheckpointWrapper",
}  # fmt: skip


class Range(NamedTuple):
    start: int
    end: int
    thread: int
    name: str


def is_wanted(function: str) -> bool:
    """Whether a Python function is a call of a module or of torch.autograd.backward."""
    return function.startswith(MODULE) or (AUTOGRAD in function and function.endswith("): backward"))


def has_modules(trace) -> bool:
    return any(name.startswith(MODULE) for name in trace.texts)


def derived_ranges(trace, *, on_gpu: bool) -> list[Range]:
    """The ranges of a trace that the recorder did not write. Operators become ranges only if the trace has no modules,
    and only `on_gpu`: else they are the activities. Of ranges with equal times, the earlier in the list is the outer one."""
    ranges = _annotations(trace, on_gpu)
    step = "ProfilerStep" if any(one.name == STEP for one in ranges) else STEP
    ranges = [one._replace(name=step) if PROFILER_STEP.fullmatch(one.name) else one for one in ranges]
    calls = ModuleCalls(trace)
    opened = [one for one in ranges if one.name == BACKWARD]
    ranges += _not_inside(_passes(trace, calls), opened)
    if len(calls.names):
        ends = np.unique([one.end for one in ranges])  # annotations separate passes, too
        ranges += reversed(list(_backward_ranges(trace, calls, ends)))  # which come innermost first
        ranges += [calls.range_of(call) for call, chain in enumerate(calls.chains) if chain and chain[-1] == call]
    elif on_gpu:
        ranges += _operators(trace)
    return ranges


def recorded_ranges(trace, *, on_gpu: bool) -> list[Range]:
    """The ranges of a trace that the recorder wrote. If it has steps, those of the program's own schedule are left out:
    they end elsewhere, and would divide the recorder's."""
    ranges = _annotations(trace, on_gpu)
    has_steps = any(one.name == STEP for one in ranges)
    return [one for one in ranges if not (has_steps and PROFILER_STEP.fullmatch(one.name))]


def _annotations(trace, on_gpu: bool) -> list[Range]:
    """The ranges that the program opened. A name that begins with %= was encoded by the recorder, since Kineto spoils all
    but printable ASCII. Collectives of Gloo are ranges `on_gpu`, else activities."""
    names = [
        unquote(name.removeprefix("%="), errors="replace") if name.startswith("%=") else name
        for name in trace.named("annotation")
    ]
    return [one for one in _events(trace["annotation"], None, names) if on_gpu or not one.name.startswith(GLOO)]


# Operators


def outermost_operators(trace) -> np.ndarray:
    """The rows of the outermost ATen operators and inductor's kernels of each thread, by start. Autograd's nodes
    ("MulBackward0") do not count, since they only call operators."""
    operators = trace["operator"]
    computes = [re.match(r"aten::|(graph_\d+_)?cpp_fused_", name) is not None for name in trace.texts]
    threads = by_thread(operators["thread"], np.isin(operators["name"], np.flatnonzero(computes)))
    rows = np.concatenate([np.empty(0, np.int64), *(outermost(operators, rows) for rows in threads.values())])
    return rows[np.lexsort((operators["order"][rows], -operators["end"][rows], operators["start"][rows]))]


def gloo_collectives(trace) -> list[tuple[int, int]]:
    """The collectives of Gloo, by start: the row of its annotation, on a thread of Gloo's own, and that of the operator
    that started it, NONE if that ran before the trace.

    Gloo runs collectives in the order of the calls: each belongs to the earliest call of its operation that began before
    it, and that no other collective belongs to.
    """
    # Of calls on one tensor; Gloo has no reduce-scatter, but reduces all, and keeps a part.
    run_for = {"allgatherbase": "allgather", "reducescatterbase": "allreduce"}

    def operations(kind: str, prefix: str) -> Iterator[tuple[int, int, str]]:
        names = trace.named(kind)
        rows = np.array([row for row, name in enumerate(names) if name.startswith(prefix)], np.int64)
        for row in rows[np.lexsort((trace[kind]["order"][rows], trace[kind]["start"][rows]))].tolist():
            operation = names[row].removeprefix(prefix).replace("_", "")
            yield row, int(trace[kind]["start"][row]), run_for.get(operation, operation)

    free: dict[str, deque] = defaultdict(deque)
    for row, start, operation in operations("operator", "c10d::"):
        free[operation].append((start, row))
    return [
        (row, free[operation].popleft()[1] if free[operation] and free[operation][0][0] <= start else NONE)
        for row, start, operation in operations("annotation", GLOO)
    ]


class Nesting:
    """How the events of one thread nest; an event that ends after its outer event is cut there.

    `order`: the events by start. `parent`: the event around each, NONE without one. `innermost`: the innermost open
    event from each of `times` to the next; its last element is for times before the first.
    """

    def __init__(self, start: np.ndarray, end: np.ndarray):
        self.parent = np.full(len(start), NONE)
        self.order = np.lexsort((-end, start)).tolist()
        times, innermost, stack, starts, ends = [], [], [], start.tolist(), end.tolist()
        for event in [*self.order, None]:
            begin = starts[event] if event is not None else float("inf")
            while stack and ends[stack[-1]] <= begin:
                times.append(ends[stack.pop()])
                innermost.append(stack[-1] if stack else NONE)
            if event is None:
                break
            self.parent[event] = stack[-1] if stack else NONE
            if ends[event] > begin:
                ends[event] = min(ends[event], ends[stack[-1]]) if stack else ends[event]
                stack.append(event)
                times.append(begin)
                innermost.append(event)
        self.times, self.innermost = np.array(times, np.int64), np.array([*innermost, NONE], np.int64)

    def at(self, times: np.ndarray) -> np.ndarray:
        """The innermost open event at each time, NONE if none is."""
        return self.innermost[np.searchsorted(self.times, times, "right") - 1]


class ModuleCalls:
    """The calls of modules, without wrappers, by number."""

    def __init__(self, trace):
        names = {
            number: NOT_OF_CLASS.sub("", trace.texts[number].removeprefix(MODULE))
            for number in np.unique(trace["function"]["name"]).tolist()
            if trace.texts[number].startswith(MODULE)
        }
        kept = np.isin(trace["function"]["name"], [number for number, name in names.items() if name not in WRAPPERS])
        self.start, self.end, self.thread, number = (
            trace["function"][n][kept] for n in ("start", "end", "thread", "name")
        )
        self.names = [names[one] for one in number.tolist()]
        self.rows = by_thread(self.thread)
        self.nesting = {thread: Nesting(self.start[rows], self.end[rows]) for thread, rows in self.rows.items()}
        self.parent = np.full(len(self.names), NONE)
        for thread, rows in self.rows.items():
            inner = self.nesting[thread].parent
            self.parent[rows] = np.where(inner == NONE, NONE, rows[inner])
        # By call, the calls around it and itself; without those of the class of the one directly around them.
        self.chains: list[tuple[int, ...]] = [()] * len(self.names)
        for call in np.lexsort((-self.end, self.start)).tolist():
            around = self.chains[self.parent[call]] if self.parent[call] != NONE else ()
            repeats = bool(around) and self.names[around[-1]] == self.names[call]
            self.chains[call] = around if repeats else (*around, call)

    def range_of(self, call: int, name: str | None = None) -> Range:
        return Range(int(self.start[call]), int(self.end[call]), int(self.thread[call]), name or self.names[call])

    def at(self, thread: int, times: np.ndarray) -> np.ndarray:
        """The innermost open call on the thread at each time, NONE if none is."""
        if thread not in self.rows:
            return np.full(len(times), NONE)
        inner = self.nesting[thread].at(times)
        return np.where(inner == NONE, NONE, self.rows[thread][inner])


def by_thread(thread: np.ndarray, mask: np.ndarray | None = None) -> dict[int, np.ndarray]:
    """The rows of the events of each thread, only those in `mask` if it is given."""
    rows = np.arange(len(thread)) if mask is None else np.flatnonzero(mask)
    order = rows[np.argsort(thread[rows], kind="stable")]
    ids, first = np.unique(thread[order], return_index=True)
    return dict(zip(ids.tolist(), np.split(order, first[1:])))


def outermost(events: dict, rows: np.ndarray) -> np.ndarray:
    """The `rows` of events of one thread that lie in no other one of these, by start."""
    rows = rows[np.lexsort((events["order"][rows], -events["end"][rows], events["start"][rows]))]
    covered = np.maximum.accumulate(events["end"][rows])
    return rows[np.append(True, events["start"][rows[1:]] >= covered[:-1])[: len(rows)]]


def _events(events: dict, rows, names: list[str]) -> list[Range]:
    rows = slice(None) if rows is None else rows
    return [
        Range(*times, name)
        for *times, name in zip(*(events[n][rows].tolist() for n in ("start", "end", "thread")), names)
    ]


def _not_inside(ranges: list[Range], outer: list[Range]) -> list[Range]:
    if not ranges or not outer:
        return ranges
    starts, ends = np.array(sorted((one.start, one.end) for one in outer)).T
    latest = np.maximum.accumulate(ends)
    begun = np.searchsorted(starts, [one.start for one in ranges], "right")
    inside = (begun > 0) & (latest[begun - 1] >= [one.end for one in ranges])
    return [ranges[index] for index in np.flatnonzero(~inside)]


def _passes(trace, calls: ModuleCalls) -> list[Range]:
    """The calls of torch.autograd.backward; in a trace without these and without modules, the times in which a thread
    runs nodes in a row."""
    rows = [row for row, name in enumerate(trace.named("function")) if not name.startswith(MODULE)]
    if rows or len(calls.names):
        return _events(trace["function"], rows, [BACKWARD] * len(rows))
    operators, is_node, passes = trace["operator"], _node_mask(trace), []
    ends = np.unique(trace["annotation"]["end"])
    for thread, rows in by_thread(operators["thread"]).items():
        rows = outermost(operators, rows)
        start, end, node = operators["start"][rows], operators["end"][rows], is_node[rows]
        before, after = np.searchsorted(ends, start, "right"), np.searchsorted(ends, end, "right")
        continues = node[1:] & node[:-1] & (before[1:] == after[:-1])  # no end of an annotation between them
        first, last = node & ~np.append(False, continues)[: len(rows)], node & ~np.append(continues, False)[: len(rows)]
        passes += [Range(a, b, thread, BACKWARD) for a, b in zip(start[first].tolist(), end[last].tolist())]
    return passes


def _operators(trace) -> list[Range]:
    """The outermost operators, with the shapes of their inputs."""
    operators, shapes, ranges = trace["operator"], [_shapes_text(text) for text in trace.shapes], []
    for rows in by_thread(operators["thread"]).values():
        rows = outermost(operators, rows)
        pairs = zip(operators["name"][rows].tolist(), operators["shapes"][rows].tolist())
        ranges += _events(
            operators, rows, [trace.texts[name].removeprefix(NODE) + shapes[shape] for name, shape in pairs]
        )
    return ranges


def _shapes_text(text: bytes) -> str:
    """ "(4×256, 256)" for the JSON [[4, 256], [256], []]; "" without shapes."""

    def one(shape) -> str:
        if isinstance(shape, list) and any(isinstance(size, list) for size in shape):  # of a list of tensors
            return f"[{', '.join(map(one, shape))}]"
        return "×".join(map(str, shape)) if isinstance(shape, list) else str(shape)

    try:
        shapes = json.loads(text) if text else []
    except ValueError:
        return ""
    texts = [one(shape) for shape in shapes if shape] if isinstance(shapes, list) else []
    return f"({', '.join(texts)})" if texts else ""


# The backward pass


def _node_mask(trace) -> np.ndarray:
    """By operator: whether it is a node of autograd. Older traces have nodes without the engine around them."""
    engine = [number for number, name in enumerate(trace.texts) if name.startswith(NODE)]
    inside = np.isin(trace["operator"]["name"], engine)
    return inside if inside.any() else trace["operator"]["forward_thread"] > 0


def _backward_ranges(trace, calls: ModuleCalls, ends: np.ndarray) -> Iterator[Range]:
    """The ranges of modules in backward passes, and of modules that a checkpoint computes again there. A range may last
    over several nodes, unless one of `ends` lies between them."""
    operators, is_node = trace["operator"], _node_mask(trace)
    sequence, forward_thread = _node_numbers(operators, is_node)
    forward_call = _forward_calls(trace, calls, is_node, sequence, forward_thread)
    again, requester = _recomputed(operators, calls, is_node, forward_call)
    chains: dict[int, tuple[int, ...]] = dict(enumerate(calls.chains)) | {NONE: ()}
    for call in np.argsort(calls.start, kind="stable").tolist():  # a requester comes before what it computes again
        depths = [depth for depth, outer in enumerate(chains[call]) if outer in requester]
        if depths:
            chains[call] = chains[requester[chains[call][depths[-1]]]] + chains[call][depths[-1] :]
    yield from (calls.range_of(call, RECOMPUTATION) for call in again.tolist())
    for thread, rows in by_thread(operators["thread"], is_node).items():
        mine = again[calls.thread[again] == thread]
        nesting = Nesting(
            np.concatenate([operators["start"][rows], calls.start[mine]]),
            np.concatenate([operators["end"][rows], calls.end[mine]]),
        )
        known = sequence[rows] != NONE
        of_node = [chains[call] if is_known else None for call, is_known in zip(forward_call[rows].tolist(), known)]
        yield from _thread_ranges(nesting, [*of_node, *[()] * len(mine)], ends, calls.names, thread)


def _thread_ranges(nesting: Nesting, chains: list, ends: np.ndarray, names: list[str], thread: int) -> Iterator[Range]:
    """The ranges of the modules to which the nodes of a thread belong, while these run. A node without a chain belongs
    to the modules of the previous node; an inner one to those of the previous in the same outer node, or of that."""
    previous: dict[int, tuple | None] = {}
    for node in nesting.order:
        parent = nesting.parent[node]
        if parent != NONE and chains[node] is None:
            chains[node] = previous.get(parent, chains[parent])
        previous[parent] = chains[node]
    passes = np.searchsorted(ends, nesting.times, "right").tolist()
    since: dict[int, int] = {}  # by open call, outermost first
    last, last_pass = 0, -1

    def close(depth: int) -> Iterator[Range]:
        while len(since) > depth:
            call, start = since.popitem()
            yield Range(start, last, thread, names[call])

    for index, (begin, end) in enumerate(pairwise(nesting.times.tolist())):
        node = nesting.innermost[index]
        if node == NONE or end == begin:
            continue
        if passes[index] != last_pass and begin > last:
            yield from close(0)
        if (chain := chains[node]) is not None:
            common = [*(a == b for a, b in zip(since, chain)), False].index(False)
            yield from close(common)
            since |= dict.fromkeys(chain[common:], begin)
        last, last_pass = end, passes[index + 1]
    yield from close(0)


def _node_numbers(operators: dict, is_node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sequence number and the forward thread of each operator. A node without them gets those of the operator that
    the engine calls in it."""
    sequence, forward = operators["sequence"].copy(), operators["forward_thread"].copy()
    numbered = by_thread(operators["thread"], ~is_node & (sequence != NONE) & (forward > 0))
    for thread, rows in by_thread(operators["thread"], is_node).items():
        inner = numbered.get(thread, np.empty(0, np.int64))
        index = Nesting(operators["start"][rows], operators["end"][rows]).at(operators["start"][inner])
        inner, outer = inner[index != NONE], rows[index[index != NONE]]
        inner, outer = inner[sequence[outer] == NONE], outer[sequence[outer] == NONE]
        sequence[outer], forward[outer] = sequence[inner], forward[inner]
    return sequence, forward


def _forward_calls(trace, calls: ModuleCalls, is_node, sequence, forward_thread) -> np.ndarray:
    """By node, the innermost call of a module around the operator that it differentiates; NONE for all others."""
    operators, result = trace["operator"], np.full(len(sequence), NONE)
    creators: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # by thread: numbers, and the start of the last with each
    for thread, rows in by_thread(operators["thread"], ~is_node & (sequence != NONE) & (forward_thread == 0)).items():
        order = rows[np.lexsort((operators["start"][rows], sequence[rows]))]
        last = np.append(sequence[order][1:] != sequence[order][:-1], True)[: len(order)]
        creators[thread] = sequence[order][last], operators["start"][order][last]
    linked, numbered = _linked_threads(trace, forward_thread), is_node & (sequence != NONE)
    for number in np.unique(forward_thread[numbered]).tolist():
        rows = np.flatnonzero(numbered & (forward_thread == number))
        most = max(creators, key=lambda one: int(np.isin(sequence[rows], creators[one][0]).sum()), default=None)
        thread = linked.get(number) or most
        if thread in creators:
            created, start = creators[thread]
            index = np.minimum(np.searchsorted(created, sequence[rows]), len(created) - 1)
            known = created[index] == sequence[rows]
            result[rows[known]] = calls.at(thread, start[index[known]])
    return result


def _linked_threads(trace, forward_thread: np.ndarray) -> dict[int, int]:
    """The thread by PyTorch's number, from arrows between operators; an arrow names the thread and time at its head."""
    operators, arrows = trace["operator"], trace["arrow"]
    rows = np.flatnonzero(forward_thread > 0)
    beginnings = zip(operators["thread"][rows].tolist(), operators["start"][rows].tolist())
    number_at = dict(zip(beginnings, forward_thread[rows].tolist()))
    tails, heads = (
        {name: column[mask] for name, column in arrows.items()} for mask in (arrows["is_begin"], ~arrows["is_begin"])
    )
    _, tail, head = np.intersect1d(tails["id"], heads["id"], return_indices=True)
    votes: dict[int, Counter] = defaultdict(Counter)
    for place, thread in zip(
        zip(heads["thread"][head].tolist(), heads["start"][head].tolist()), tails["thread"][tail].tolist()
    ):
        votes[number_at.get(place, NONE)][thread] += 1
    return {number: counts.most_common(1)[0][0] for number, counts in votes.items()}


def _recomputed(operators: dict, calls: ModuleCalls, is_node, forward_call) -> tuple[np.ndarray, dict[int, int]]:
    """The outermost calls of modules in nodes, and by call, the forward call of the node in which it ran."""
    found, requester = [np.empty(0, np.int64)], {}
    for thread, rows in by_thread(operators["thread"], is_node).items():
        mine = np.flatnonzero(calls.thread == thread)
        index = Nesting(operators["start"][rows], operators["end"][rows]).at(calls.start[mine])
        inner, outer = mine[index != NONE], rows[index[index != NONE]]
        parent = calls.parent[inner]
        is_outermost = (parent == NONE) | (calls.start[parent] < operators["start"][outer])
        found.append(inner[is_outermost])
        requester |= dict(zip(inner[is_outermost].tolist(), forward_call[outer[is_outermost]].tolist()))
    return np.concatenate(found), requester
