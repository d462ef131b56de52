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
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np

from kernel_tables.capture import NONE

MODULE, NODE, GLOO = "nn.Module: ", "autograd::engine::evaluate_function: ", "gloo:"
BACKWARD, STEP = "backward", "step"
PROFILER_STEP = re.compile(r"ProfilerStep#\d+")  # of torch.profiler's schedule


class Range(NamedTuple):
    """A range; of those with equal times, the earlier in a list is the outer one."""

    start: int
    end: int
    thread: int  # global id
    name: str


def is_wanted(function: str) -> bool:
    """Whether a Python function is a call of a module or of torch.autograd.backward."""
    return function.startswith(MODULE) or (
        "torch/autograd/__init__.py(" in function and function.endswith("): backward")
    )


def derived_ranges(trace, *, on_gpu: bool) -> list[Range]:
    """The ranges of a trace that the recorder did not write. Operators become ranges only if the trace has no modules,
    and only `on_gpu`: else they are the activities."""
    ranges, calls = _annotations(trace, on_gpu), ModuleCalls(trace)
    step = "ProfilerStep" if any(one.name == STEP for one in ranges) else STEP
    ranges = [one._replace(name=step) if PROFILER_STEP.fullmatch(one.name) else one for one in ranges]
    opened = [(one.start, one.end) for one in ranges if one.name == BACKWARD]
    passes = _passes(trace, calls)
    if opened and passes:  # those of the program count
        starts, ends = np.array(sorted(opened)).T
        begun = np.searchsorted(starts, [one.start for one in passes], "right")
        is_outside = (begun == 0) | (np.maximum.accumulate(ends)[begun - 1] < [one.end for one in passes])
        passes = [passes[index] for index in np.flatnonzero(is_outside)]
    ranges += passes
    if len(calls.names):
        ends = np.unique([one.end for one in ranges])  # annotations separate passes, too
        ranges += [*Backward(trace, calls).ranges(ends)][::-1]  # which come innermost first
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


def _as_ranges(events: dict[str, np.ndarray], rows: Any, names: Iterable[str]) -> list[Range]:
    columns = (events[name][rows].tolist() for name in ("start", "end", "thread"))
    return list(map(Range._make, zip(*columns, names, strict=True)))


def _annotations(trace, on_gpu: bool) -> list[Range]:
    """The ranges that the program opened. A name that begins with %= was encoded by the recorder, since Kineto spoils
    all but printable ASCII. Collectives of Gloo are ranges `on_gpu`, else activities."""
    names = trace.named("annotation")
    names = [unquote(one.removeprefix("%="), errors="replace") if one.startswith("%=") else one for one in names]
    ranges = _as_ranges(trace["annotation"], slice(None), names)
    return [one for one in ranges if on_gpu or not one.name.startswith(GLOO)]


def _passes(trace, calls: "ModuleCalls") -> list[Range]:
    """The calls of torch.autograd.backward; in a trace without these and without modules, the times in which a thread
    runs nodes in a row, with no other outermost operator and no end of an annotation between them."""
    rows = [row for row, name in enumerate(trace.named("function")) if not name.startswith(MODULE)]
    if rows or len(calls.names):
        return _as_ranges(trace["function"], rows, [BACKWARD] * len(rows))
    operators, is_node, passes = trace["operator"], node_mask(trace), []
    ends = np.unique(trace["annotation"]["end"])
    for thread, rows in by_thread(operators["thread"]).items():
        rows = outermost(operators, rows)
        start, end, node = operators["start"][rows], operators["end"][rows], is_node[rows]
        before, after = np.searchsorted(ends, start, "right"), np.searchsorted(ends, end, "right")
        continues = node[1:] & node[:-1] & (before[1:] == after[:-1])
        first, last = node & ~np.append(False, continues)[: len(rows)], node & ~np.append(continues, False)[: len(rows)]
        times = zip(start[first].tolist(), end[last].tolist(), strict=True)
        passes += [Range(*both, thread, BACKWARD) for both in times]
    return passes


# Operators


def by_thread(thread: np.ndarray, mask: np.ndarray | None = None) -> dict[int, np.ndarray]:
    """The rows of the events of each thread, only those in `mask` if it is given."""
    rows = np.arange(len(thread)) if mask is None else np.flatnonzero(mask)
    order = rows[np.argsort(thread[rows], kind="stable")]
    ids, first = np.unique(thread[order], return_index=True)
    return dict(zip(ids.tolist(), np.split(order, first[1:]), strict=False))  # np.split returns one part for no events


def outermost(events: dict[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
    """The `rows` of events of one thread that lie in no other one of these, by start. Of two with equal times, the one
    with the lower `order` is the outer one."""
    rows = rows[np.lexsort((events["order"][rows], -events["end"][rows], events["start"][rows]))]
    covered = np.maximum.accumulate(events["end"][rows])
    return rows[np.append(True, events["start"][rows[1:]] >= covered[:-1])[: len(rows)]]


def outermost_operators(trace) -> np.ndarray:
    """The rows of the outermost ATen operators and inductor's kernels of each thread, by start. Autograd's nodes
    ("MulBackward0") do not count, since they only call operators."""
    operators = trace["operator"]
    computes = [re.match(r"aten::|(graph_\d+_)?cpp_fused_", name) is not None for name in trace.texts]
    threads = by_thread(operators["thread"], np.isin(operators["name"], np.flatnonzero(computes)))
    rows = np.concatenate([np.empty(0, np.int64), *(outermost(operators, rows) for rows in threads.values())])
    return rows[np.lexsort((operators["order"][rows], -operators["end"][rows], operators["start"][rows]))]


def gloo_collectives(trace) -> tuple[np.ndarray, np.ndarray]:
    """The collectives of Gloo, by start: the rows of their annotations, on threads of Gloo's own, and the rows of the
    operators that started them, NONE for those before the trace.

    Gloo runs collectives in the order of the calls: each belongs to the earliest call of its operation that began
    before it, and that no other collective belongs to.
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
    annotations, starters = [], []
    for row, start, operation in operations("annotation", GLOO):
        has_starter = free[operation] and free[operation][0][0] <= start
        annotations.append(row)
        starters.append(free[operation].popleft()[1] if has_starter else NONE)
    return np.array(annotations, np.int64), np.array(starters, np.int64)


def _operators(trace) -> list[Range]:
    """The outermost operators, with the shapes of their inputs: "aten::mm(4×256, 256)"."""

    def size(shape) -> str:
        if isinstance(shape, list) and any(isinstance(one, list) for one in shape):  # of a list of tensors
            return f"[{', '.join(map(size, shape))}]"
        return "×".join(map(str, shape)) if isinstance(shape, list) else str(shape)

    def text_of(shapes: bytes) -> str:
        try:
            shapes = json.loads(shapes) if shapes else []
        except ValueError:
            return ""
        sizes = [size(shape) for shape in shapes if shape] if isinstance(shapes, list) else []
        return f"({', '.join(sizes)})" if sizes else ""

    operators, shapes, ranges = trace["operator"], [text_of(text) for text in trace.shapes], []
    for rows in by_thread(operators["thread"]).values():
        rows = outermost(operators, rows)
        pairs = zip(operators["name"][rows].tolist(), operators["shapes"][rows].tolist(), strict=True)
        names = (trace.texts[name].removeprefix(NODE) + shapes[shape] for name, shape in pairs)
        ranges += _as_ranges(operators, rows, names)
    return ranges


# Modules


class Nesting:
    """How the events of one thread nest; an event that ends after its outer event is cut there.

    `order`: the events by start. `parent`: the event around each, NONE without one. `innermost`: the innermost open
    event from each of `times` to the next; its last element is for times before the first.
    """

    def __init__(self, start: np.ndarray, end: np.ndarray):
        self.parent = np.full(len(start), NONE)
        self.order = np.lexsort((-end, start)).tolist()
        times, innermost, stack, starts, ends = [], [], [], start.tolist(), end.tolist()
        parent = [NONE] * len(starts)
        for event in self.order:
            begin = starts[event]
            while stack and ends[stack[-1]] <= begin:
                times.append(ends[stack.pop()])
                innermost.append(stack[-1] if stack else NONE)
            if stack:
                parent[event] = stack[-1]
            if ends[event] > begin:
                if stack and ends[stack[-1]] < ends[event]:
                    ends[event] = ends[stack[-1]]
                stack.append(event)
                times.append(begin)
                innermost.append(event)
        while stack:
            times.append(ends[stack.pop()])
            innermost.append(stack[-1] if stack else NONE)
        self.parent = np.array(parent, np.int64)
        self.times, self.innermost = np.array(times, np.int64), np.array([*innermost, NONE], np.int64)

    def at(self, times: np.ndarray) -> np.ndarray:
        """The innermost open event at each time, NONE if none is."""
        return self.innermost[np.searchsorted(self.times, times, "right") - 1]


class ModuleCalls:
    """The calls of modules, without wrappers, by number."""

    def __init__(self, trace):
        wrappers = {
            "DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule",
            "CheckpointWrapper",
        }  # fmt: skip
        of_class = re.compile(r"_\d+$|^FSDP(?=[A-Z])")  # fully_shard renames the class Block to FSDPBlock
        functions = trace["function"]
        names = {
            number: of_class.sub("", trace.texts[number].removeprefix(MODULE))
            for number in np.unique(functions["name"]).tolist()
            if trace.texts[number].startswith(MODULE)
        }
        kept = np.isin(functions["name"], [number for number, name in names.items() if name not in wrappers])
        self.start, self.end, self.thread = (functions[column][kept] for column in ("start", "end", "thread"))
        self.names = [names[number] for number in functions["name"][kept].tolist()]
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
        """The range of a call, with the name of its class or another one."""
        return Range(int(self.start[call]), int(self.end[call]), int(self.thread[call]), name or self.names[call])

    def at(self, thread: int, times: np.ndarray) -> np.ndarray:
        """The innermost open call on the thread at each time, NONE if none is."""
        if thread not in self.rows:
            return np.full(len(times), NONE)
        inner = self.nesting[thread].at(times)
        return np.where(inner == NONE, NONE, self.rows[thread][inner])


def node_mask(trace) -> np.ndarray:
    """By operator: whether it is a node of autograd. Older traces have nodes without the engine around them."""
    engine = [number for number, name in enumerate(trace.texts) if name.startswith(NODE)]
    inside = np.isin(trace["operator"]["name"], engine)
    return inside if inside.any() else trace["operator"]["forward_thread"] > 0


class Backward:
    """The nodes of autograd, and the calls of modules to which each belongs.

    `owner` has by node the innermost call around the operator that it differentiates: NONE if it ran in no call,
    UNKNOWN for a node without numbers.
    """

    UNKNOWN = -2

    def __init__(self, trace, calls: ModuleCalls):
        self.trace, self.operators, self.calls = trace, trace["operator"], calls
        self.is_node = node_mask(trace)
        self.rows = by_thread(self.operators["thread"], self.is_node)
        self.nesting = {
            thread: Nesting(self.operators["start"][rows], self.operators["end"][rows])
            for thread, rows in self.rows.items()
        }
        self.sequence, self.forward_thread = self._numbers()
        self.owner = np.where(self.sequence == NONE, self.UNKNOWN, self._forward_calls())

    def ranges(self, ends: np.ndarray) -> Iterator[Range]:
        """The ranges of modules in backward passes, and of modules that a checkpoint computes again there, inner ones
        first. A range may last over several nodes, unless one of `ends` lies between them."""
        again, requester = self._recomputed()
        chains: dict[int, tuple[int, ...]] = dict(enumerate(self.calls.chains)) | {NONE: ()}
        for call in np.argsort(self.calls.start, kind="stable").tolist():  # a requester comes before what it requests
            depths = [depth for depth, outer in enumerate(chains[call]) if outer in requester] if requester else ()
            if depths:
                chains[call] = chains[requester[chains[call][depths[-1]]]] + chains[call][depths[-1] :]
        yield from (self.calls.range_of(call, "recomputation") for call in again.tolist())
        for thread, rows in self.rows.items():
            mine, nesting, owner = again[self.calls.thread[again] == thread], self.nesting[thread], self.owner[rows]
            if len(mine):  # what is computed again belongs to no module of the backward pass
                start, end = (
                    np.append(self.operators[key][rows], getattr(self.calls, key)[mine]) for key in ("start", "end")
                )
                nesting, owner = Nesting(start, end), np.append(owner, np.full(len(mine), NONE))
            yield from self._thread_ranges(nesting, owner, chains, ends, thread)

    def _thread_ranges(
        self, nesting: Nesting, owner: np.ndarray, chains: dict, ends: np.ndarray, thread: int
    ) -> Iterator[Range]:
        """The ranges of the modules to which the nodes of a thread belong, while these run. A node without an owner
        gets that of the previous node; an inner one that of the previous in the same outer node, or else of that."""
        if (owner == self.UNKNOWN).any():
            previous: dict[int, int] = {}
            for node in nesting.order:
                parent = nesting.parent[node]
                if parent != NONE and owner[node] == self.UNKNOWN:
                    owner[node] = previous.get(parent, owner[parent])
                previous[parent] = owner[node]
        node, begin, end = nesting.innermost[:-2], nesting.times[:-1], nesting.times[1:]
        runs = (node != NONE) & (end > begin)
        begin, end, owner = begin[runs], end[runs], owner[node[runs]]
        before, after = np.searchsorted(ends, begin, "right"), np.searchsorted(ends, end, "right")
        begins_pass = np.append(True, (before[1:] != after[:-1]) & (begin[1:] > end[:-1]))[: len(begin)]
        known = (owner != self.UNKNOWN) | begins_pass
        owner = owner[np.maximum.accumulate(np.where(known, np.arange(len(owner)), 0))]
        first = np.flatnonzero(begins_pass | np.append(True, owner[1:] != owner[:-1])[: len(begin)])
        since: dict[int, int] = {}  # by open call, outermost first
        last = 0

        def close(depth: int) -> Iterator[Range]:
            while len(since) > depth:
                call, start = since.popitem()
                yield Range(start, last, thread, self.calls.names[call])

        runs = zip(
            begins_pass[first].tolist(), owner[first].tolist(), begin[first].tolist(),
            np.append(end[first[1:] - 1], end[-1:]).tolist(), strict=True,
        )  # fmt: skip
        for is_pass, call, start, run_end in runs:
            if is_pass:
                yield from close(0)
            chain = chains.get(call, ())
            common = [*(a == b for a, b in zip(since, chain, strict=False)), False].index(False)
            yield from close(common)
            since |= dict.fromkeys(chain[common:], start)
            last = run_end
        yield from close(0)

    def _numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """The sequence number and the forward thread of each operator. A node without them gets those of the operator
        that the engine calls in it."""
        sequence, forward = self.operators["sequence"].copy(), self.operators["forward_thread"].copy()
        numbered = by_thread(self.operators["thread"], ~self.is_node & (sequence != NONE) & (forward > 0))
        for thread, rows in self.rows.items():
            inner = numbered.get(thread, np.empty(0, np.int64))
            index = self.nesting[thread].at(self.operators["start"][inner])
            inner, outer = inner[index != NONE], rows[index[index != NONE]]
            inner, outer = inner[sequence[outer] == NONE], outer[sequence[outer] == NONE]
            sequence[outer], forward[outer] = sequence[inner], forward[inner]
        return sequence, forward

    def _forward_calls(self) -> np.ndarray:
        """By node, the innermost call of a module around the operator that it differentiates; NONE for all others."""
        operators, sequence, result = self.operators, self.sequence, np.full(len(self.sequence), NONE)
        creators: dict[
            int, tuple[np.ndarray, np.ndarray]
        ] = {}  # by thread: numbers, and the start of the last with each
        creates = ~self.is_node & (sequence != NONE) & (self.forward_thread == 0)
        for thread, rows in by_thread(operators["thread"], creates).items():
            order = rows[np.lexsort((operators["start"][rows], sequence[rows]))]
            last = np.append(sequence[order][1:] != sequence[order][:-1], True)[: len(order)]
            creators[thread] = sequence[order][last], operators["start"][order][last]
        linked, numbered = self._linked_threads(), self.is_node & (sequence != NONE)
        for number in np.unique(self.forward_thread[numbered]).tolist():
            rows = np.flatnonzero(numbered & (self.forward_thread == number))
            counts = {thread: int(np.isin(sequence[rows], created).sum()) for thread, (created, _) in creators.items()}
            thread = linked.get(number) or max(counts, key=counts.get, default=None)
            if thread in creators:
                created, start = creators[thread]
                index = np.minimum(np.searchsorted(created, sequence[rows]), len(created) - 1)
                known = created[index] == sequence[rows]
                result[rows[known]] = self.calls.at(thread, start[index[known]])
        return result

    def _linked_threads(self) -> dict[int, int]:
        """The thread by PyTorch's number, from arrows between operators; an arrow names thread and time at its head."""
        operators, arrows = self.operators, self.trace["arrow"]
        tails, heads = (
            {name: column[mask] for name, column in arrows.items()}
            for mask in (arrows["is_begin"], ~arrows["is_begin"])
        )
        _, tail, head = np.intersect1d(tails["id"], heads["id"], return_indices=True)
        if not len(tail):
            return {}
        rows = np.flatnonzero(self.forward_thread > 0)
        beginnings = zip(operators["thread"][rows].tolist(), operators["start"][rows].tolist(), strict=True)
        number_at = dict(zip(beginnings, self.forward_thread[rows].tolist(), strict=True))
        places = zip(heads["thread"][head].tolist(), heads["start"][head].tolist(), strict=True)
        votes: dict[int, Counter] = defaultdict(Counter)
        for place, thread in zip(places, tails["thread"][tail].tolist(), strict=True):
            votes[number_at.get(place, NONE)][thread] += 1
        return {number: counts.most_common(1)[0][0] for number, counts in votes.items()}

    def _recomputed(self) -> tuple[np.ndarray, dict[int, int]]:
        """The outermost calls of modules in nodes, and by call, the owner of the node in which it ran."""
        found, requester, calls = [np.empty(0, np.int64)], {}, self.calls
        for thread, rows in self.rows.items():
            mine = np.flatnonzero(calls.thread == thread)
            index = self.nesting[thread].at(calls.start[mine])
            inner, outer = mine[index != NONE], rows[index[index != NONE]]
            parent = calls.parent[inner]
            is_outermost = (parent == NONE) | (calls.start[parent] < self.operators["start"][outer])
            found.append(inner[is_outermost])
            owners = np.maximum(self.owner[outer[is_outermost]], NONE)
            requester |= dict(zip(inner[is_outermost].tolist(), owners.tolist(), strict=True))
        return np.concatenate(found), requester
