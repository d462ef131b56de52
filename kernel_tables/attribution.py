"""Which ranges each activity belongs to: the rule of attribution. Integer nanoseconds; no table, no SQL.

A launch belongs to the ranges that are open at its time on its thread. It also inherits ranges of other threads of its
process: those that enclose the outermost of its thread's open ranges, or, if its thread has none open, those that are
open at the launch (autograd runs the backward pass on a thread of its own, while the thread that asked for it waits).
Inherited ranges come first, by (start, longest first, thread, row), then those of its thread in opening order.

    thread 1   step 0-100, backward 40-90 inside it
    thread 2   MulBackward 50-60

A launch on thread 2 at 55 has the chain step > backward > MulBackward; one at 70 has step > backward; one at 95 step.

An activity of a replayed CUDA graph has the ranges at the launch of the replay, then those that were open when its node
was captured: without those around the capture, up to the innermost whose name is open at the launch, and without those
that repeat, in order, ranges at the launch.

Chains are nodes of a trie: a node is a range, with the chain around it. The first nodes are the ranges themselves, in
the chain in which each was opened; ranges of a thread that overlap without nesting, and mixtures of threads, add more.
"""

from dataclasses import dataclass

import numpy as np

from kernel_tables.capture import NONE, Activities, Calls, Capture, CaptureError, Ranges, blocks, numbered, process_of

NO_RANGE, BEFORE_CAPTURE, NOT_RECORDED = 0, 1, 2  # paths: launched in no range; launch not in the capture; no id of it
NO_LAUNCH_NAMES = ["(launched before the capture)", "(launch not recorded)"]
MAX_DEPTH, MAX_NODES = 1_000, 30_000_000


@dataclass
class Attribution:
    """The path of each activity. A path is a number: its parent path, and one more name."""

    launch_row: np.ndarray  # by activity: the row of its call, NONE without one
    path: np.ndarray  # by activity
    parent: np.ndarray  # by path
    last_name: np.ndarray  # by path: index into names, NONE for no range
    names: list[str]
    instances: np.ndarray  # by path: how many ranges were opened in it, those of a captured graph once per replay
    node_unknown: np.ndarray  # by activity: whether it was replayed, and the creation of its node is not recorded
    crossing: int  # how many pushed ranges end after the one around them: impossible

    def names_of(self, path: int) -> tuple[str, ...]:
        """The names of a path, outermost first."""
        names: list[str] = []
        while path != NO_RANGE:
            names.append(self.names[self.last_name[path]])
            path = self.parent[path]
        return tuple(reversed(names))


def attribute(capture: Capture) -> Attribution:
    """The attribution of all activities. Raises CaptureError if ranges are open a thousand deep."""
    activities, calls, ranges = capture.activities, capture.calls, capture.ranges
    row = launch_rows(activities, calls)
    chains = Chains(ranges)
    has_call = row != NONE
    node = np.full(len(row), NONE, np.int32)
    for block in blocks(len(row)):
        known = np.flatnonzero(has_call[block])
        calls_of = row[block][known]
        threads, times, nodes = calls.thread[calls_of], calls.start[calls_of], np.empty(len(known), np.int32)
        for index in np.unique(threads).tolist():
            mine = np.flatnonzero(threads == index)
            nodes[mine] = chains.at(times[mine], int(calls.threads[index]))
        node[block][known] = nodes
    created, creation_node, began = creations(capture, row, chains)
    chains.inherit_around_roots()
    paths = Paths(chains, ranges)
    path, of_node = node, np.append(paths.of_node, NO_RANGE).astype(np.int32)
    for block in blocks(len(node)):
        path[block] = of_node[node[block]]
    path[~has_call] = np.where(activities.correlation[~has_call] > 0, BEFORE_CAPTURE, NOT_RECORDED)
    instances = np.bincount(paths.of_node[: len(ranges)], minlength=len(paths.parent))
    unknown = np.zeros(len(row), bool)
    if len(created):
        unknown = (activities.node != NONE) & (created == NONE) & has_call
        time = capture.nodes.time
        instances = _replay(paths, path, row, created, creation_node, began, time, chains, ranges, instances)
    elif not capture.is_torch and len(calls.named("GraphLaunch")):
        unknown = (activities.node != NONE) & has_call
    parent, last_name = np.array(paths.parent), np.array(paths.last_name)
    crossing = sum(_crossings(ranges, line.rows) for line in chains.timelines.values() if not line.nests)
    return Attribution(row, path, parent, last_name, paths.names, instances, unknown, crossing)


def launch_rows(activities: Activities, calls: Calls) -> np.ndarray:
    """The row of the call of each activity, NONE without one.

    Correlation ids are unique within a process; 0 is none. If several calls have one id (a runtime call around a driver
    call), the earliest counts, which is the outermost.
    """
    known = calls.process
    processes, index = numbered(activities.process)
    if NONE in processes.tolist():
        if len(known := np.unique(known)) > 1:
            raise CaptureError("activities name no process, and several made calls: correlation ids are ambiguous")
        processes = np.where(processes == NONE, known[0] if len(known) else NONE, processes)
    every, number = np.unique(np.append(processes, calls.process), return_inverse=True)
    number = number.reshape(-1)
    if len(every) == 1:
        return rows_of(calls.correlation, calls.start, activities.correlation)
    span = 1 + max(int(calls.correlation.max(initial=0)), int(activities.correlation.max(initial=0)))
    own = number[: len(processes)][index] * span + activities.correlation
    of_calls = number[len(processes) :][calls.thread] * span + calls.correlation
    own[activities.correlation <= 0], of_calls[calls.correlation <= 0] = NONE, NONE
    return rows_of(of_calls, calls.start, own)


def rows_of(ids: np.ndarray, start: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The index in `ids` of each wanted id, NONE if it is absent or not positive; of equal ids the one that starts
    first."""
    if not len(ids) or not len(wanted):
        return np.full(len(wanted), NONE, np.int32)
    is_sorted = (start[1:] >= start[:-1]).all()
    order = np.arange(len(ids), dtype=np.int32) if is_sorted else np.argsort(start, kind="stable").astype(np.int32)
    low, high = int(max(ids.min(), 1)), int(ids.max())
    if high - low < 8 * len(ids) + 1024:
        slots = np.full(max(high - low, 0) + 2, NONE, np.int32)  # the last stays empty
        order = order[::-1]  # the last assignment wins, so the earliest comes last
        if low > ids.min():
            order = order[ids[order] > 0]
        for block in blocks(len(order)):
            slots[ids[order[block]] - low] = order[block]
        rows = np.empty(len(wanted), np.int32)
        for block in blocks(len(wanted)):
            slot = wanted[block] - low
            slot[(slot < 0) | (slot > high - low)] = -1
            rows[block] = slots[slot]
        return rows
    order = order[np.argsort(ids[order], kind="stable")]
    place = np.minimum(np.searchsorted(ids[order], wanted), len(order) - 1)
    return np.where((ids[order[place]] == wanted) & (wanted > 0), order[place], NONE).astype(np.int32)


class Chains:
    """The chains of open ranges of every thread, as a trie."""

    def __init__(self, ranges: Ranges):
        self.ranges = ranges
        self.parents = [np.full(len(ranges), NONE, np.int32)]
        self.members = [np.arange(len(ranges), dtype=np.int32)]  # by node: its range
        self.added: list[tuple[int, int]] = []  # further nodes: (parent, range)
        self.index: dict[tuple[int, int], int] = {}
        self.timelines: dict[int, _Timeline] = {}  # by thread
        self.merged: dict[tuple, int] = {}
        threads, number = numbered(ranges.thread)
        order = np.argsort(number, kind="stable")
        for thread, rows in zip(threads.tolist(), np.split(order, np.cumsum(np.bincount(number))[:-1])):
            if len(rows):
                self.timelines[thread] = _Timeline(self, rows)
        self.of_process: dict[int, list[int]] = {}
        for thread in self.timelines:
            self.of_process.setdefault(process_of(thread), []).append(thread)

    def add(self, parent: int, member: int) -> int:
        """The node of a range below a parent."""
        node = self.index.get((parent, member))
        if node is None:
            if len(self.added) > MAX_NODES:
                raise CaptureError(f"more than {MAX_NODES:,} chains of ranges: ranges are opened and not closed")
            node = self.index[parent, member] = len(self.ranges) + len(self.added)
            self.added.append((parent, member))
        return node

    def chain(self, node: int) -> list[int]:
        """The ranges of a node, outermost first."""
        chain = []
        while node != NONE:
            is_added = node >= len(self.ranges)
            parent, member = self.added[node - len(self.ranges)] if is_added else (int(self.parents[0][node]), node)
            chain.append(member)
            node = parent
        return chain[::-1]

    def node_of(self, chain: list[int]) -> int:
        """The node of a chain."""
        node = NONE
        for member in chain:
            node = self.add(node, member)
        return node

    def at(self, times: np.ndarray, thread: int) -> np.ndarray:
        """The node at each time on a thread, with the ranges inherited where the thread has none open."""
        timeline = self.timelines.get(thread)
        nodes = timeline.at(times) if timeline else np.full(len(times), NONE, np.int32)
        empty = np.flatnonzero(nodes == NONE)
        others = [other for other in self.of_process.get(process_of(thread), []) if other != thread]
        if len(empty) and others:
            nodes[empty] = self._merge([self.timelines[other].at(times[empty]) for other in others])
        return nodes

    def inherit_around_roots(self) -> None:
        """Puts what the outermost ranges of each thread inherit around them. Call it after `at`, before `arrays`."""
        changes = []
        for threads in self.of_process.values():
            for thread in threads if len(threads) > 1 else []:
                roots, members = self.timelines[thread].roots(self)
                offers = [self._enclosing(self.timelines[other], members) for other in threads if other != thread]
                changes.append((roots, self._merge(offers)))
        for roots, around in changes:
            for root, node in zip(roots[around != NONE].tolist(), around[around != NONE].tolist()):
                if root < len(self.ranges):
                    self.parents[0][root] = node
                else:
                    self.added[root - len(self.ranges)] = node, self.added[root - len(self.ranges)][1]

    def _enclosing(self, timeline: "_Timeline", inner: np.ndarray) -> np.ndarray:
        """For each range `inner` of another thread, the node of the ranges of `timeline` that enclose it in time and do
        not have the same start and end."""
        start, end = self.ranges.start, self.ranges.end
        nodes = timeline.at(start[inner])
        if not timeline.nests:
            for place in np.flatnonzero(nodes != NONE).tolist():
                a, b = start[inner[place]], end[inner[place]]
                around = [m for m in self.chain(int(nodes[place])) if end[m] >= b and (start[m], end[m]) != (a, b)]
                nodes[place] = self.node_of(around)
            return nodes
        parents, pending = self.parents[0], np.flatnonzero(nodes != NONE)
        while len(pending):  # outwards, until a range encloses
            node, one = nodes[pending], inner[pending]
            same = (start[node] == start[one]) & (end[node] == end[one])
            pending = pending[(end[node] < end[one]) | same]
            nodes[pending] = parents[nodes[pending]]
            pending = pending[nodes[pending] != NONE]
        return nodes

    def _merge(self, offers: list[np.ndarray]) -> np.ndarray:
        """The node of all ranges that several threads offer to each query."""
        merged = offers[0].copy()
        for offer in offers[1:]:
            merged[(merged == NONE)] = offer[merged == NONE]
        several = np.flatnonzero(sum((offer != NONE).astype(np.int32) for offer in offers) > 1)
        for place, nodes in zip(several.tolist(), zip(*(offer[several].tolist() for offer in offers))):
            if nodes not in self.merged:
                self.merged[nodes] = self.node_of(sorted({m for node in nodes for m in self.chain(node)}))
            merged[place] = self.merged[nodes]
        return merged

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """The parent and the range of each node."""
        added = np.array(self.added, np.int32).reshape(-1, 2)
        return np.append(self.parents[0], added[:, 0]), np.append(self.members[0], added[:, 1])


class _Timeline:
    """Which node is open on one thread from each of `times` to the next."""

    def __init__(self, chains: Chains, rows: np.ndarray):
        """`rows` are the ranges of the thread, ascending, so in opening order."""
        start, end = chains.ranges.start[rows], chains.ranges.end[rows]
        self.rows = rows
        solid = end > start  # a range without a duration is never open
        closing = np.flatnonzero(solid)
        closing = closing[np.lexsort((-closing, end[closing]))]
        closed = np.searchsorted(end[closing], start, "right")
        depth = np.cumsum(solid) - solid - closed
        if int(depth.max(initial=0)) >= MAX_DEPTH:
            raise CaptureError(f"ranges are open {int(depth.max())} deep: they are pushed and not popped")
        parent = np.full(len(rows), NONE)
        for level in range(1, int(depth.max(initial=0)) + 1):
            outer, inner = np.flatnonzero((depth == level - 1) & solid), np.flatnonzero(depth == level)
            parent[inner] = outer[np.searchsorted(outer, inner) - 1]
        inner = parent != NONE
        self.nests = not (end[inner] > end[parent[inner]]).any()
        if not self.nests:
            self.times, self.open = _sweep(chains, rows, start, end)
            return
        nodes = np.append(rows, NONE).astype(np.int32)
        chains.parents[0][rows] = nodes[parent]
        opening = np.arange(len(closing)) + closed[solid]  # the place of each opening among all events
        is_closing = np.ones(2 * len(closing), bool)
        is_closing[opening] = False
        self.times, inside = np.empty(len(is_closing), np.int64), np.empty(len(is_closing), np.int64)
        self.times[opening], inside[opening] = start[solid], np.flatnonzero(solid)
        self.times[is_closing], inside[is_closing] = end[closing], parent[closing]
        self.open = np.append(nodes[inside], np.int32(NONE))  # the last is for times before the first

    def at(self, times: np.ndarray) -> np.ndarray:
        """The innermost node that is open at each time, NONE if none is."""
        return self.open[np.searchsorted(self.times, times, "right") - 1]

    def roots(self, chains: Chains) -> tuple[np.ndarray, np.ndarray]:
        """The outermost nodes of the thread, and the range of each."""
        nodes = self.rows if self.nests else np.unique(np.append(self.rows, self.open[self.open != NONE]))
        if not self.nests:  # further segments of a range have further nodes, and so have the nodes below them
            nodes = np.unique([node for number in nodes.tolist() for node in _upwards(chains, number)])
        parents, members = chains.arrays()
        nodes = nodes[parents[nodes] == NONE]
        return nodes, members[nodes]


def _crossings(ranges: Ranges, rows: np.ndarray) -> int:
    """How many pushed ranges of a thread end after one of the same domain that was open when they were pushed."""
    stacks: dict[int, list[int]] = {}  # by domain: the ends of the open ranges
    count = 0
    for row in rows[ranges.pushed[rows]].tolist():
        stack, start, end = stacks.setdefault(int(ranges.domain[row]), []), int(ranges.start[row]), int(ranges.end[row])
        while stack and stack[-1] <= start:
            stack.pop()
        count += bool(stack) and stack[-1] < end
        stack.append(end)
    return count


def _upwards(chains: Chains, node: int) -> list[int]:
    nodes = []
    while node != NONE:
        nodes.append(node)
        is_added = node >= len(chains.ranges)
        node = chains.added[node - len(chains.ranges)][0] if is_added else int(chains.parents[0][node])
    return nodes


def _sweep(chains: Chains, rows: np.ndarray, start: np.ndarray, end: np.ndarray):
    """As the constructor of _Timeline does, for ranges that overlap without nesting: event by event."""
    stack: list[int] = []
    times, nodes = [], []
    events = [(int(time), 1, int(row)) for time, row in zip(start, rows)]
    events += [(int(b), 0, int(row)) for a, b, row in zip(start, end, rows) if b > a]
    ends = dict(zip(rows.tolist(), end.tolist()))
    for time, is_opening, row in sorted(events):
        if is_opening:
            around = chains.node_of(stack)
            chains.parents[0][row] = around
            if ends[row] > time:
                stack.append(row)
        else:
            stack.remove(row)
        times.append(time)
        nodes.append(chains.node_of(stack))
        if len(stack) > MAX_DEPTH:
            raise CaptureError(f"ranges are open {len(stack)} deep: they are started and not ended")
    return np.array(times, np.int64), np.array([*nodes, NONE], np.int32)


class Paths:
    """Every path of names that occurs, numbered."""

    def __init__(self, chains: Chains, ranges: Ranges):
        self.names = [*ranges.names, *NO_LAUNCH_NAMES]
        self.parent, self.last_name = [NO_RANGE] * 3, [NONE, len(ranges.names), len(ranges.names) + 1]
        self.index: dict[tuple[int, int], int] = {}
        parent, member = chains.arrays()
        name = ranges.name[member] if len(member) else np.empty(0, np.int32)
        self.of_node = np.zeros(len(parent) + 1, np.int32)[: len(parent)]
        level = np.flatnonzero(parent == NONE)
        children = np.argsort(parent, kind="stable")
        first = np.searchsorted(parent[children], np.arange(len(parent) + 1))
        while len(level):
            around = np.append(self.of_node, NO_RANGE)[parent[level]]
            distinct, index = np.unique(around * np.int64(len(self.names)) + name[level], return_inverse=True)
            new = [self.below(*divmod(key, len(self.names))) for key in distinct.tolist()]
            self.of_node[level] = np.array(new, np.int32)[index.reshape(-1)]
            counts = first[level + 1] - first[level]  # the children of the level
            offsets = np.repeat(first[level] - np.cumsum(counts) + counts, counts)
            level = children[offsets + np.arange(len(offsets))]

    def below(self, parent: int, name: int) -> int:
        """The path of a name below another path."""
        path = self.index.get((parent, name))
        if path is None:
            path = self.index[parent, name] = len(self.parent)
            self.parent.append(parent)
            self.last_name.append(name)
        return path

    def codes(self, path: int) -> list[int]:
        codes = []
        while path != NO_RANGE:
            codes.append(self.last_name[path])
            path = self.parent[path]
        return codes[::-1]


def creations(capture: Capture, row: np.ndarray, chains: Chains):
    """By activity, the index of the creation of its graph node, NONE without one; by creation, the chain at it, and
    when the stream capture around it began. All empty if the capture has no creation."""
    nodes, activities = capture.nodes, capture.activities
    if not len(nodes.node) or not len(capture.ranges):
        return (np.empty(0, np.int64),) * 3
    created = np.full(len(row), NONE, np.int64)
    replayed = np.flatnonzero((activities.node != NONE) & (row != NONE))
    process, of_event = activities.process[replayed], process_of(nodes.thread)
    for number in np.unique(process).tolist():
        mine, events = replayed[process == number], np.flatnonzero(of_event == number)
        original = {node: source for node, source in zip(nodes.node[events].tolist(), nodes.original[events].tolist())}
        first: dict[int, int] = {}
        for event in events[np.argsort(nodes.time[events], kind="stable")].tolist():
            if nodes.original[event] == NONE and nodes.time[event] >= 0:
                first.setdefault(int(nodes.node[event]), event)
        distinct, index = np.unique(activities.node[mine], return_inverse=True)
        found = []
        for node in distinct.tolist():
            for _ in range(100):  # a graph is instantiated once, and cloned a few times before
                if original.get(node, NONE) == NONE:
                    break
                node = original[node]
            found.append(first.get(node, NONE))
        created[mine] = np.array(found, np.int64)[index.reshape(-1)]
    at_creation = np.full(len(nodes.node), NONE, np.int32)
    for thread in np.unique(nodes.thread).tolist():
        mine = np.flatnonzero(nodes.thread == thread)
        at_creation[mine] = chains.at(nodes.time[mine], thread)
    began = stream_capture_begins(capture.calls, nodes.time, of_event)
    return created, at_creation, np.where(began == NONE, nodes.time, began)


def stream_capture_begins(calls: Calls, times: np.ndarray, process: np.ndarray) -> np.ndarray:
    """The begin of the stream capture that is running in the process at each time, NONE if none is running."""
    began = np.full(len(times), NONE, np.int64)
    begins, ends = calls.named("StreamBeginCapture"), calls.named("StreamEndCapture")
    if not len(begins):
        return began
    process_of_call = calls.process[calls.thread]
    for number in np.unique(process_of_call[begins]).tolist():
        mine = np.flatnonzero(process == number)
        starts = np.sort(calls.start[begins[process_of_call[begins] == number]])
        stops = np.sort(calls.start[ends[process_of_call[ends] == number]])
        begun = np.searchsorted(starts, times[mine], "right")
        is_open = begun > np.searchsorted(stops, times[mine], "right")
        began[mine[is_open]] = starts[begun[is_open] - 1]
    return began


def _replay(paths: Paths, path, row, created, creation_node, began, time, chains: Chains, ranges: Ranges, instances):
    """Moves the replayed activities to their captured ranges; returns the instances with those of the replays."""
    counts = dict(enumerate(instances.tolist()))
    replayed = np.flatnonzero(created != NONE)
    order = replayed[np.lexsort((created[replayed], row[replayed]))]
    first = np.flatnonzero(np.diff(row[order], prepend=-2))
    known: dict[tuple[int, bytes], tuple[list[int], dict[int, int]]] = {}  # by path at the launch, and creations
    for members in np.split(order, first[1:]) if len(order) else []:
        launch, events = int(path[members[0]]), created[members]
        key = launch, events.tobytes()
        if key not in known:
            known[key] = _replayed_paths(paths, launch, events.tolist(), creation_node, began, time, chains, ranges)
        new, opened = known[key]
        path[members] = new
        for one, count in opened.items():
            counts[one] = counts.get(one, 0) + count
    result = np.zeros(len(paths.parent), np.int64)
    result[list(counts)] = list(counts.values())
    return result


def _replayed_paths(paths: Paths, launch: int, events: list[int], creation_node, began, time, chains, ranges):
    """The path of each activity of one replay, in the order of `events`, and the new instances by path."""
    at_launch = paths.codes(launch)
    earliest = min(events, key=lambda event: (time[event], event))
    around = [m for m in chains.chain(int(creation_node[earliest])) if ranges.start[m] < began[earliest]]
    left_out = max((m for m in around if ranges.name[m] in at_launch), default=NONE)
    of_chain: dict[int, int] = {}  # by captured node
    opened: set[int] = set()  # the captured ranges, each of which is one instance
    new, instances = [], {}
    for event in events:
        node = int(creation_node[event])
        if node not in of_chain:
            captured = [m for m in chains.chain(node) if m > left_out]
            codes = [int(ranges.name[m]) for m in captured]
            repeated = 0
            if codes and codes[0] in at_launch:
                level = len(at_launch) - 1 - at_launch[::-1].index(codes[0])
                while at_launch[level + repeated : level + repeated + 1] == codes[repeated : repeated + 1] != []:
                    repeated += 1
            path = launch
            for member, code in zip(captured[repeated:], codes[repeated:]):
                path = paths.below(path, code)
                if member not in opened:
                    opened.add(member)
                    instances[path] = instances.get(path, 0) + 1
            of_chain[node] = path
        new.append(of_chain[node])
    return new, instances
