"""The ranges of a trace: annotations of the program, and what the trace implies: modules, the backward pass,
operators, nodes of replayed graphs.

A trace with stacks has an event for each call of a module, `nn.Module: Block_3`. The backward pass runs nodes of
autograd: each belongs to the modules whose operation it differentiates. A node has the number ("Sequence number") of
the operator that created it; if several operators have that number, the one that began last created the node. Threads
number their operators separately, so a node also names its forward thread, by a number of PyTorch's own: it is the
thread whose operators have most of the numbers of its nodes, and if several have as many, it is not known.
"""

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np

from kernel_tables.capture import KINDS, NONE, Activities, Nodes, rows_by_value

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
    is_of_autograd = "torch/autograd/__init__.py(" in function
    return function.startswith(MODULE) or (is_of_autograd and function.endswith("): backward"))


def derived_ranges(trace, *, on_gpu: bool) -> list[Range]:
    """The ranges of a trace that the recorder did not write. Operators become ranges only if the trace has no modules,
    and only `on_gpu`: else they are the activities."""
    ranges, calls = _annotations(trace, on_gpu), ModuleCalls(trace)
    passes = _passes(trace, calls)
    step = "ProfilerStep" if any(one.name == STEP for one in ranges) else STEP
    ranges = [one._replace(name=step) if PROFILER_STEP.fullmatch(one.name) else one for one in ranges]
    opened = [one for one in ranges if one.name == BACKWARD]  # by the program: these count
    ranges += [one for one in passes if not any(own.start <= one.start and one.end <= own.end for own in opened)]
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
    for thread, rows in outermost(operators).items():
        start, end, node = operators["start"][rows], operators["end"][rows], is_node[rows]
        before, after = np.searchsorted(ends, start, "right"), np.searchsorted(ends, end, "right")
        continues = np.concatenate([[False], node[1:] & node[:-1] & (before[1:] == after[:-1]), [False]])
        first, last = node & ~continues[:-1], node & ~continues[1:]
        times = zip(start[first].tolist(), end[last].tolist(), strict=True)
        passes += [Range(*one, thread, BACKWARD) for one in times]
    return passes


# Operators


def outermost(events: dict[str, np.ndarray], mask: np.ndarray | None = None) -> dict[int, np.ndarray]:
    """By thread, the rows of the events (in `mask`) that lie in no other one of these, by start. Of two with equal
    times, the one with the lower `external` id is the outer one."""
    found = {}
    for thread, rows in rows_by_value(events["thread"], mask).items():
        rows = rows[np.lexsort((events["external"][rows], -events["end"][rows], events["start"][rows]))]
        covered = np.maximum.accumulate(events["end"][rows])
        found[thread] = rows[np.append(True, events["start"][rows[1:]] >= covered[:-1])]
    return found


def often_cross(events: dict[str, np.ndarray]) -> bool:
    """Whether events of one thread often overlap without nesting, as those of one program never do."""
    inexact, crossing, others = 1000, 0, 0  # ns
    for rows in rows_by_value(events["thread"]).values():
        rows = rows[np.lexsort((-events["end"][rows], events["start"][rows]))]
        start, end = events["start"][rows], events["end"][rows]
        latest = np.maximum.accumulate(end)[:-1]
        crossing += np.count_nonzero((latest - start[1:] > inexact) & (end[1:] - latest > inexact))
        others += np.count_nonzero(latest <= start[1:])
    return crossing > max(1, 0.1 * others)


def outermost_operators(trace) -> np.ndarray:
    """The rows of the outermost ATen operators and inductor's kernels of each thread, by start. Autograd's nodes
    ("MulBackward0") do not count, since they only call operators."""
    operators = trace["operator"]
    computes = [re.match(r"aten::|(graph_\d+_)?cpp_fused_", name) is not None for name in trace.texts]
    threads = outermost(operators, np.array([*computes, False])[operators["name"]])
    rows = np.concatenate([np.empty(0, np.int64), *threads.values()])
    return rows[np.lexsort((operators["external"][rows], -operators["end"][rows], operators["start"][rows]))]


def gloo_collectives(trace) -> tuple[np.ndarray, np.ndarray]:
    """The collectives of Gloo, by start: the rows of their annotations, on threads of Gloo's own, and the rows of the
    operators that started them, NONE for those before the trace.

    Gloo runs collectives in the order of the calls: each belongs to the earliest call of its operation that began
    before it, and that no other collective belongs to."""
    # Of calls on one tensor; Gloo has no reduce-scatter, but reduces all, and keeps a part.
    run_for = {"allgatherbase": "allgather", "reducescatterbase": "allreduce"}

    def operations(kind: str, prefix: str) -> Iterator[tuple[int, int, str]]:
        names, events = trace.named(kind), trace[kind]
        for row in np.lexsort((events["external"], events["start"])).tolist():
            if names[row].startswith(prefix):
                operation = names[row].removeprefix(prefix).replace("_", "")
                yield row, int(events["start"][row]), run_for.get(operation, operation)

    free: dict[str, deque] = defaultdict(deque)
    for row, start, operation in operations("operator", "c10d::"):
        free[operation].append((start, row))
    pairs = []
    for row, start, operation in operations("annotation", GLOO):
        has_starter = free[operation] and free[operation][0][0] <= start
        pairs.append((row, free[operation].popleft()[1] if has_starter else NONE))
    annotations, starters = np.array(pairs, np.int64).reshape(-1, 2).T
    return annotations, starters


def _operators(trace) -> list[Range]:
    """The outermost operators, with the shapes of their inputs: "aten::mm(4×256, 256)"."""

    def size(shape) -> str:
        if isinstance(shape, list) and any(isinstance(one, list) for one in shape):  # of a list of tensors
            return f"[{', '.join(map(size, shape))}]"
        return "×".join(map(str, shape)) if isinstance(shape, list) else str(shape)

    def text_of(shapes: bytes) -> str:
        told = json.loads(shapes.decode(errors="replace") or "[]")
        sizes = [size(shape) for shape in told if shape] if isinstance(told, list) else []
        return f"({', '.join(sizes)})" if sizes else ""

    operators, shapes, ranges = trace["operator"], [text_of(text) for text in trace.shapes], []
    for rows in outermost(operators).values():
        pairs = zip(operators["name"][rows].tolist(), operators["shapes"][rows].tolist(), strict=True)
        names = (trace.texts[name].removeprefix(NODE) + shapes[shape] for name, shape in pairs)
        ranges += _as_ranges(operators, rows, names)
    return ranges


# Modules


class Nesting:
    """How the events (in `mask`) of each thread nest; one that ends after its outer event is cut there.

    `parent`: the row of the event around each, NONE without one. `open`: by thread, times, and the innermost open event
    from each of them to the next; its last element is for times before the first."""

    def __init__(self, start: np.ndarray, end: np.ndarray, thread: np.ndarray, mask: np.ndarray | None = None):
        self.parent, self.open = np.full(len(start), NONE), {}
        for number, rows in rows_by_value(thread, mask).items():
            rows = rows[np.lexsort((-end[rows], start[rows]))]
            stack, times, innermost, parents = [(NONE, np.inf)], [], [], []
            events = zip(rows.tolist(), start[rows].tolist(), end[rows].tolist(), strict=True)
            for event, begin, stop in [*events, (NONE, 1 << 62, 0)]:
                while stack[-1][1] <= begin:
                    times.append(stack.pop()[1])
                    innermost.append(stack[-1][0])
                parents.append(stack[-1][0])
                if stop > begin:
                    stack.append((event, stop if stop < stack[-1][1] else stack[-1][1]))
                    times.append(begin)
                    innermost.append(event)
            self.parent[rows] = parents[:-1]
            self.open[number] = np.array(times, np.int64), np.array([*innermost, NONE], np.int64)

    def at(self, thread: int, times: np.ndarray) -> np.ndarray:
        """The innermost event that is open on the thread at each time, NONE if none is."""
        changes, innermost = self.open.get(thread, (np.empty(0, np.int64), np.array([NONE])))
        return innermost[np.searchsorted(changes, times, "right") - 1]


class ModuleCalls:
    """The calls of modules, without wrappers, by number.

    `chains` has by call the calls around it and itself, without those of the class of the one directly around them."""

    def __init__(self, trace):
        wrappers = {
            "DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule",
            "CheckpointWrapper",
        }  # fmt: skip
        of_class = re.compile(r"_\d+$|^FSDP(?=[A-Z])")  # fully_shard renames the class Block to FSDPBlock
        texts = [of_class.sub("", text.removeprefix(MODULE)) if text.startswith(MODULE) else "" for text in trace.texts]
        functions, is_kept = trace["function"], [bool(text) and text not in wrappers for text in texts]
        kept = np.array([*is_kept, False])[functions["name"]]
        self.start, self.end, self.thread = (functions[column][kept] for column in ("start", "end", "thread"))
        self.names = [texts[number] for number in functions["name"][kept].tolist()]
        self.nesting = Nesting(self.start, self.end, self.thread)
        self.chains: list[tuple[int, ...]] = [()] * len(self.names)
        for call in np.lexsort((-self.end, self.start)).tolist():
            parent = self.nesting.parent[call]
            around = self.chains[parent] if parent != NONE else ()
            repeats = bool(around) and self.names[around[-1]] == self.names[call]
            self.chains[call] = around if repeats else (*around, call)

    def range_of(self, call: int, name: str | None = None) -> Range:
        """The range of a call, with the name of its class or another one."""
        return Range(int(self.start[call]), int(self.end[call]), int(self.thread[call]), name or self.names[call])


def node_mask(trace) -> np.ndarray:
    """By operator: whether it is a node of autograd."""
    nodes = [number for number, name in enumerate(trace.texts) if name.startswith(NODE)]
    return np.isin(trace["operator"]["name"], nodes)


class Backward:
    """The nodes of autograd, and the calls of modules to which each belongs.

    `owner` has by node the innermost call around the operator that it differentiates: NONE if it ran in no call,
    UNKNOWN for a node without numbers."""

    UNKNOWN = -2

    def __init__(self, trace, calls: ModuleCalls):
        self.operators, self.calls = trace["operator"], calls
        self.is_node = node_mask(trace)
        self.nesting = Nesting(*(self.operators[key] for key in ("start", "end", "thread")), self.is_node)
        sequence, forward_thread = self._numbers()
        self.owner = np.where(sequence == NONE, self.UNKNOWN, self._forward_calls(sequence, forward_thread))

    def ranges(self, ends: np.ndarray) -> Iterator[Range]:
        """The ranges of modules in backward passes, and of modules that a checkpoint computes again there, inner ones
        first. A range may last over several nodes, unless one of `ends` lies between them."""
        calls, requester = self.calls, self._recomputed()
        chains: dict[int, tuple[int, ...]] = dict(enumerate(calls.chains)) | {NONE: ()}
        for call in np.argsort(calls.start, kind="stable").tolist():  # a requester comes before what it requests
            depths = [depth for depth, outer in enumerate(chains[call]) if outer in requester] if requester else ()
            if depths:
                chains[call] = chains[requester[chains[call][depths[-1]]]] + chains[call][depths[-1] :]
        yield from (calls.range_of(call, "recomputation") for call in requester)
        nesting, owner, start, end = self.nesting, self.owner, self.operators["start"], self.operators["end"]
        if requester:  # what is computed again belongs to no module of the backward pass
            again = [*requester]
            start, end = np.append(start, calls.start[again]), np.append(end, calls.end[again])
            thread = np.append(self.operators["thread"], calls.thread[again])
            nesting = Nesting(start, end, thread, np.append(self.is_node, np.full(len(again), True)))
            owner = np.append(owner, np.full(len(again), NONE))
        # A node without an owner has that of the previous one in its outer node, or else of that.
        if ((owner == self.UNKNOWN) & (nesting.parent != NONE)).any():
            previous: dict[int, int] = {}
            for node in np.lexsort((-end, start)).tolist():
                parent = nesting.parent[node]
                if parent != NONE and owner[node] == self.UNKNOWN:
                    owner[node] = previous.get(parent, owner[parent])
                previous[parent] = owner[node]
        for thread, (times, innermost) in nesting.open.items():
            yield from self._thread_ranges(times, innermost[:-2], owner, chains, ends, thread)

    def _thread_ranges(
        self, times: np.ndarray, node: np.ndarray, owner: np.ndarray, chains: dict, ends: np.ndarray, thread: int
    ) -> Iterator[Range]:
        """The ranges of the modules to which the nodes of a thread belong, while these run: each `node` from one of the
        times to the next. An outermost node without an owner has that of the previous one in its pass."""
        passes = np.searchsorted(ends, times, "right").tolist()
        runs = zip(pairwise(times.tolist()), pairwise(passes), node.tolist(), owner[node].tolist(), strict=True)
        since: dict[int, int] = {}  # by open call, outermost first
        chain, last, last_pass = (), -1, -1

        def close(depth: int) -> Iterator[Range]:
            while len(since) > depth:
                call, start = since.popitem()
                yield Range(start, last, thread, self.calls.names[call])

        for (begin, end), (before, after), inner, call in runs:
            if inner == NONE or begin == end:
                continue
            if begins_pass := before != last_pass and begin > last:
                yield from close(0)
            if begins_pass or (call != self.UNKNOWN and chains[call] is not chain):
                chain = chains.get(call, ())
                common = [*(a == b for a, b in zip(since, chain, strict=False)), False].index(False)
                yield from close(common)
                since |= dict.fromkeys(chain[common:], begin)
            last, last_pass = end, after
        yield from close(0)

    def _numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Sequence number and forward thread of each operator; of a node without them, those of the operator in it."""
        sequence, forward = self.operators["sequence"].copy(), self.operators["forward_thread"].copy()
        is_numbered = ~self.is_node & (sequence != NONE) & (forward > 0)
        for thread, inner in rows_by_value(self.operators["thread"], is_numbered).items():
            outer = self.nesting.at(thread, self.operators["start"][inner])
            lacks = (outer != NONE) & (sequence[outer] == NONE)
            sequence[outer[lacks]], forward[outer[lacks]] = sequence[inner[lacks]], forward[inner[lacks]]
        return sequence, forward

    def _forward_calls(self, sequence: np.ndarray, forward_thread: np.ndarray) -> np.ndarray:
        """By node, the innermost call of a module around the operator that it differentiates; NONE for all others."""
        operators, result, created = self.operators, np.full(len(sequence), NONE), {}
        creates = ~self.is_node & (sequence != NONE) & (forward_thread <= 0)
        for thread, rows in rows_by_value(operators["thread"], creates).items():
            rows = rows[np.argsort(operators["start"][rows], kind="stable")][::-1]
            numbers, last = np.unique(sequence[rows], return_index=True)
            created[thread] = numbers, operators["start"][rows[last]]
        nodes = rows_by_value(forward_thread, self.is_node & (sequence != NONE))
        for rows in sorted(nodes.values(), key=len, reverse=True):
            counts = {thread: np.isin(sequence[rows], numbers).sum() for thread, (numbers, _) in created.items()}
            threads = [thread for thread, count in counts.items() if count == max(1, *counts.values())]
            if len(threads) == 1:  # else it is not known which
                numbers, start = created.pop(threads[0])
                place = np.minimum(np.searchsorted(numbers, sequence[rows]), len(numbers) - 1)
                is_known = numbers[place] == sequence[rows]
                result[rows[is_known]] = self.calls.nesting.at(threads[0], start[place[is_known]])
        return result

    def _recomputed(self) -> dict[int, int]:
        """By outermost call of a module in a node, the owner of that node."""
        calls, requester = self.calls, {}
        for thread, mine in rows_by_value(calls.thread).items():
            node = self.nesting.at(thread, calls.start[mine])
            mine, node = mine[node != NONE], node[node != NONE]
            parent = calls.nesting.parent[mine]
            found = (parent == NONE) | (calls.start[parent] < self.operators["start"][node])
            owners = np.maximum(self.owner[node[found]], NONE)
            requester |= dict(zip(mine[found].tolist(), owners.tolist(), strict=True))
        return requester


# Replayed graphs


class StreamCapture(NamedTuple):
    calls: np.ndarray  # rows of those that created nodes
    kinds: bytes  # of these nodes
    end: int


def graph_nodes(trace, activities: Activities) -> Nodes:
    """The creations of the nodes of replayed graphs, as far as they are certain; sets activities.node.

    Kineto records no creation. But if the activities of a graph run one after another, their order is that of their
    capture, so the n-th activity of a replay belongs to the n-th call. With node ids (PyTorch 2.12), their order
    is that of the capture, also where branches run at once, and nodes of loops and conditions run several times or
    not in every replay. A node has the number of its call."""
    max_overlap_ns = 500  # by inexact times, activities that run in a row overlap by up to 96 ns on an H200
    node_ids, activities.node = activities.node, np.full(len(activities), NONE)
    calls, captures, created = trace["call"], _captures(trace, activities), np.empty(0, np.int64)
    graphs: dict[bytes, list] = defaultdict(list)  # by the kinds of their nodes, in the order of their ids
    for (graph, _), replays in sorted(_replays(trace, activities, node_ids, captures).items()):
        rows, place = np.concatenate(replays), np.concatenate([np.arange(len(one)) for one in replays])
        if has_ids := graph > 0:
            place = np.unique(node_ids[rows], return_inverse=True)[1].reshape(-1)
        first = np.unique(place, return_index=True)[1]
        is_same = (activities.name[rows] == activities.name[rows[first]][place]).all()
        overlaps_ns = np.concatenate([activities.end[one[:-1]] - activities.start[one[1:]] for one in replays])
        if is_same and (has_ids or (overlaps_ns < max_overlap_ns).all()):
            graphs[activities.kind[rows[first]].tobytes()].append((rows, place, has_ids))
    for kinds, alike in graphs.items():
        captured = [capture for capture in captures if capture.kinds == kinds]
        for number, (rows, place, has_ids) in enumerate(alike):
            launch_ns = calls["start"][np.isin(calls["correlation"], activities.correlation[rows])].min()
            possible = [capture for capture in captured if capture.end <= launch_ns]
            if has_ids and len(captured) == len(alike) and captured[number].end <= launch_ns:
                possible = [captured[number]]
            if len(possible) == 1:
                activities.node[rows] = possible[0].calls[place]
                created = np.union1d(created, possible[0].calls)
    return Nodes(calls["start"][created], calls["thread"][created], created, np.full(len(created), NONE))


def _replays(trace, activities: Activities, node_ids: np.ndarray, captures: list) -> dict[tuple, list[np.ndarray]]:
    """The activities of each replay, by start, by graph: its id, or that of its first node, or, without ids, by how
    many captures ended before it, and kinds."""
    calls, graph_ids, replays = trace["call"], trace[KINDS.index("kernel")]["graph"], defaultdict(list)
    launches = trace.rows_named("call", "GraphLaunch") if captures else np.empty(0, np.int64)
    launched_ns = dict(zip(calls["correlation"][launches].tolist(), calls["start"][launches].tolist(), strict=True))
    is_replayed = np.isin(activities.correlation, list(launched_ns))
    for correlation, rows in rows_by_value(activities.correlation, is_replayed).items():
        rows = rows[np.argsort(activities.start[rows], kind="stable")]
        if (node_ids[rows] > 0).all():
            graph = int(graph_ids[rows].min())
            replays[graph if graph > 0 else int(node_ids[rows].min()), b""].append(rows)
        else:
            ended = sum(capture.end <= launched_ns[correlation] for capture in captures)
            replays[-ended, activities.kind[rows].tobytes()].append(rows)
    return replays


def _captures(trace, activities: Activities) -> list[StreamCapture]:
    """The captures of streams, by their ends."""
    calls, captures, kinds = trace["call"], [], np.full(len(trace["call"]["start"]), NONE, np.int8)
    for kind, words in enumerate([("LaunchKernel", "LaunchCooperativeKernel"), ("Memcpy",), ("Memset",)]):
        kinds[trace.rows_named("call", *words)] = kind
    creating = np.flatnonzero((kinds != NONE) & ~np.isin(calls["correlation"], activities.correlation))
    creating = creating[np.argsort(calls["start"][creating], kind="stable")]
    ends = set(trace.rows_named("call", "StreamEndCapture").tolist())
    bounds = trace.rows_named("call", "StreamBeginCapture", "StreamEndCapture")
    opened: dict[int, list[int]] = defaultdict(list)  # by thread: a condition's body is captured inside its graph
    for row in bounds[np.argsort(calls["start"][bounds], kind="stable")].tolist():
        mine = opened[int(calls["thread"][row])]
        if row not in ends:
            mine.append(int(calls["end"][row]))
        elif mine:
            begin, end = mine.pop(), int(calls["start"][row])
            # Of all threads, since autograd's launches into the capture, too.
            inside = creating[(calls["start"][creating] > begin) & (calls["start"][creating] < end)]
            captures.append(StreamCapture(inside, kinds[inside].tobytes(), end))
    return captures
