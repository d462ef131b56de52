r"""Which ranges each activity belongs to: the rule of attribution. Integer nanoseconds; no table, no SQL.

A launch belongs to the ranges that are open at its time on its thread. It also inherits ranges of other threads of its
process: those that enclose the outermost of its thread's open ranges, or, if its thread has none open, those that are
open at the launch (autograd runs the backward pass on a thread of its own, while the thread that asked for it waits).
Inherited ranges come first, by (start, longest first, thread, row), then those of its thread in opening order.

    thread 1   step 0-100, backward 40-90 inside it
    thread 2   MulBackward 50-60

A launch on thread 2 at 55 has the chain step > backward > MulBackward; one at 70 has step > backward; one at 95 step.

Chains are nodes of a trie: a node is a range, with the chain around it. The first nodes are the ranges themselves, in
the chain in which each was opened; ranges of a thread that overlap without nesting, mixtures of threads, and replays
add more. A path is the names of a chain.

When a graph is captured, the ranges that are open at the creation of a node are those of the code that the node runs;
at the replay, a single call launches all nodes. So the chain of a replayed activity begins with the ranges at the
launch of the replay, and continues with those that were open when its node was created. For example:

    warmup > step > forward > GPT     open at the creation of the node; the capture began inside warmup > step
    measure > step                    open at the launch of the replay

gives measure > step > forward > GPT. Ranges around the capture are left out up to the innermost one whose name is open
at the launch. The first ranges inside the capture are left out if they repeat ranges at the launch: those of a module
that launches its own graph, `forward > GPT` captured and `step > forward > GPT` at the launch.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path

import numpy as np

from kernel_tables.capture import NONE, Activities, Calls, Capture, Ranges, blocks, numbered, process_of, rows_by_value
from kernel_tables.errors import ImpossibleCapture
from kernel_tables.losses import leave_out

NO_RANGE, BEFORE_CAPTURE = 0, 1  # paths: launched in no range; the launch is not in the capture
SEPARATOR = " > "


@dataclass
class Attribution:
    """The chain of ranges of every activity. A node without a parent, and an activity in no range, have NONE."""

    launch_row: np.ndarray  # by activity: the row of its call, NONE without one
    launch_node: np.ndarray  # by activity: the node at its launch
    activity_node: np.ndarray  # the same, but of a replayed activity with the captured ranges
    parent: np.ndarray  # by node: the node around it
    range: np.ndarray  # by node: its innermost range
    first_replayed: int  # nodes from here on are captured ranges, once per replay
    has_unknown_node: np.ndarray  # by activity: whether it was replayed, and the creation of its node is not recorded
    paths: "Paths"

    @cached_property
    def path(self) -> np.ndarray:
        """By activity, its path, as an index of `paths`: of a replayed activity with the captured ranges."""
        return self._paths_of(self.activity_node)

    @cached_property
    def launch_path(self) -> np.ndarray:
        """By activity, the path at its launch: of a replayed activity without the captured ranges."""
        return self.path if self.activity_node is self.launch_node else self._paths_of(self.launch_node)

    def _paths_of(self, node: np.ndarray) -> np.ndarray:
        return np.where(self.launch_row == NONE, np.int32(BEFORE_CAPTURE), self.paths.of_node[node])

    def enclosing(self, is_named: np.ndarray) -> np.ndarray:
        """For each activity, the outermost range that is open at its launch and is_named[range]; NONE without one."""
        outermost = np.full(len(self.parent) + 1, NONE, np.int32)  # by node; the last is for no node
        for nodes in self.paths.levels_of_nodes:
            above, innermost = outermost[self.parent[nodes]], self.range[nodes]
            outermost[nodes] = np.where((above == NONE) & is_named[innermost], innermost, above)
        return outermost[self.launch_node]


def attribute(capture: Capture) -> Attribution:
    """The attribution of all activities. Raises ImpossibleCapture if ranges are open a thousand deep."""
    activities, calls, ranges = capture.activities, capture.calls, capture.ranges
    row = launch_rows(activities, calls)
    leave_out(capture, row)
    chains = Chains(capture.path, ranges)
    launch_node = np.full(len(row), NONE, np.int32)
    for block in blocks(len(row)):
        known = np.flatnonzero(row[block] != NONE)
        of_calls = row[block][known]
        launch_node[block][known] = chains.at_each(calls.start[of_calls], calls.threads[calls.thread[of_calls]])
    creations = find_creations(capture, row, chains)
    parent, innermost = chains.finished()
    first_replayed, activity_node = len(parent), launch_node
    is_unknown = (activities.node != NONE) & (row != NONE) & (len(calls.named("GraphLaunch")) > 0)
    if creations is not None:
        is_unknown &= creations.of_activity == NONE
        parent, innermost, activity_node = with_replays(creations, launch_node, row, parent, innermost, ranges)
    paths = Paths(parent, ranges.name[innermost], ranges.names)
    return Attribution(row, launch_node, activity_node, parent, innermost, first_replayed, is_unknown, paths)


def launch_rows(activities: Activities, calls: Calls) -> np.ndarray:
    """The row of the call of each activity, NONE without one.

    Correlation ids are unique within a process; 0 is none. If several calls have one id (a runtime call around a driver
    call), the earliest counts, which is the outermost."""
    found = np.full(len(activities), NONE, np.int32)
    for process, mine in rows_by_value(activities.process).items():
        rows = np.flatnonzero((calls.process == process)[calls.thread] & (calls.correlation > 0)).astype(np.int32)
        if (np.diff(calls.correlation[rows]) <= 0).any():
            rows = rows[np.lexsort((calls.start[rows], calls.correlation[rows]))]
        ids = calls.correlation[rows]
        for block in blocks(len(mine)) if len(rows) else []:
            wanted = activities.correlation[mine[block]]
            place = np.minimum(np.searchsorted(ids, wanted), len(rows) - 1)
            found[mine[block]] = np.where(ids[place] == wanted, rows[place], NONE)
    return found


class Chains:
    """The chains of open ranges of every thread, as a trie that grows."""

    def __init__(self, file: Path, ranges: Ranges):
        """`file` is for messages."""
        self.file, self.ranges = file, ranges
        self.parent_of_range = np.full(len(ranges), NONE, np.int32)
        self.added: list[tuple[int, int]] = []  # further nodes: (parent, range)
        self.index: dict[tuple[int, int], int] = {}  # the node of each of these
        self.timelines = {thread: _Timeline(self, rows) for thread, rows in rows_by_value(ranges.thread).items()}

    def chain(self, node: int) -> list[int]:
        """The ranges of a node, outermost first."""
        chain, count = [], len(self.ranges)
        while node != NONE:
            around, innermost = self.added[node - count] if node >= count else (int(self.parent_of_range[node]), node)
            chain.append(innermost)
            node = around
        return chain[::-1]

    def node_of(self, chain: Iterable[int]) -> int:
        """The node of a chain of ranges, outermost first; NONE for an empty one. Adds it if it is new."""
        node = NONE
        for innermost in chain:
            if (node, innermost) not in self.index:
                self.index[node, innermost] = len(self.ranges) + len(self.added)
                self.added.append((node, innermost))
            node = self.index[node, innermost]
        return node

    def at_each(self, times: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """The node at each time on the thread of the same place."""
        nodes = np.empty(len(times), np.int32)
        for thread, mine in rows_by_value(threads).items():
            nodes[mine] = self.at(times[mine], thread)
        return nodes

    def at(self, times: np.ndarray, thread: int) -> np.ndarray:
        """The node at each time on a thread, with the ranges inherited where the thread has none open."""
        timeline = self.timelines.get(thread)
        nodes = timeline.at(times) if timeline else np.full(len(times), NONE, np.int32)
        empty = np.flatnonzero(nodes == NONE)
        nodes[empty] = self._merge([other.at(times[empty]) for other in self._others(thread, times[empty])], len(empty))
        return nodes

    def _others(self, thread: int, times: np.ndarray) -> list["_Timeline"]:
        """The other threads of the process that have ranges between these times."""
        first, last = (int(times.min()), int(times.max())) if len(times) else (1, 0)
        timelines = self.timelines.items()
        others = [one for other, one in timelines if other != thread and process_of(other) == process_of(thread)]
        return [other for other in others if first < other.last and other.first <= last]

    def finished(self) -> tuple[np.ndarray, np.ndarray]:
        """The parent and the range of each node, with what the outermost ranges of each thread inherit around them.
        Nothing can be added any more."""
        parent, innermost = self._nodes()
        roots, changes = np.flatnonzero(parent == NONE), []
        for thread, mine in rows_by_value(self.ranges.thread[innermost[roots]]).items():
            rows = innermost[roots[mine]]
            offers = [self._enclosing(other, rows) for other in self._others(thread, self.ranges.start[rows])]
            changes.append((roots[mine], self._merge(offers, len(rows))))
        parent, innermost = self._nodes()
        for inner, around in changes:
            parent[inner] = around
        return parent, innermost

    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """The parent and the range of each node so far."""
        added = np.array(self.added, np.int32).reshape(-1, 2)
        innermost = np.append(np.arange(len(self.ranges), dtype=np.int32), added[:, 1])
        return np.append(self.parent_of_range, added[:, 0]), innermost

    def _enclosing(self, timeline: "_Timeline", inner: np.ndarray) -> np.ndarray:
        """For each range `inner` of another thread, the node of the ranges of `timeline` that enclose it in time and do
        not have the same start and end."""
        start, end = self.ranges.start, self.ranges.end

        def is_around(outer: np.ndarray | int, one: np.ndarray | int) -> np.ndarray | bool:
            return (end[outer] > end[one]) | (end[outer] == end[one]) & (start[outer] != start[one])

        nodes = timeline.at(start[inner])
        if timeline.nests:
            return self.outwards(nodes, lambda node, place: is_around(node, inner[place]))
        for place in np.flatnonzero(nodes != NONE).tolist():
            nodes[place] = self.node_of(one for one in self.chain(int(nodes[place])) if is_around(one, inner[place]))
        return nodes

    def outwards(self, nodes: np.ndarray, is_wanted: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """Of each node the innermost one around it, or itself, that is wanted in that place; of nested ranges."""
        pending = np.flatnonzero(nodes != NONE)
        while len(pending):
            pending = pending[~is_wanted(nodes[pending], pending)]
            nodes[pending] = self.parent_of_range[nodes[pending]]
            pending = pending[nodes[pending] != NONE]
        return nodes

    def _merge(self, offers: list[np.ndarray], count: int) -> np.ndarray:
        """The node of all ranges that other threads offer to each of `count` queries, a node of each thread."""
        offered = np.array(offers, np.int32).reshape(len(offers), count)
        merged = offered.max(axis=0, initial=NONE)
        several = np.flatnonzero((offered != NONE).sum(axis=0) > 1)
        of_several = list(zip(*offered[:, several].tolist(), strict=True))
        members = {nodes: sorted({m for node in nodes for m in self.chain(node)}) for nodes in set(of_several)}
        joint = {nodes: self.node_of(chain) for nodes, chain in members.items()}
        merged[several] = [joint[nodes] for nodes in of_several]
        return merged


class _Timeline:
    """Which node is open on one thread at any time."""

    def __init__(self, chains: Chains, rows: np.ndarray):
        """`rows` are the ranges of the thread, ascending, so in opening order."""
        start, end = chains.ranges.start[rows], chains.ranges.end[rows]
        self.chains, self.first, self.last = chains, int(start[0]), int(end.max())
        solid = end > start  # a range without a duration is never open
        depth = np.cumsum(solid, dtype=np.int32) - solid
        depth -= np.searchsorted(np.sort(end[solid]), start, "right").astype(np.int32)
        if (deepest := int(depth.max(initial=0))) >= 1000:
            fact = f"ranges are open {deepest + 1:,} deep: they are opened and not closed"
            raise ImpossibleCapture(chains.file, "too_many_open_ranges", f"{fact}; close each range that is opened")
        parent = np.full(len(rows), NONE, np.int32)
        outer = np.flatnonzero((depth == 0) & solid)
        for level in range(1, deepest + 1):
            inner = np.flatnonzero(depth == level)
            parent[inner] = outer[np.searchsorted(outer, inner) - 1]
            outer = inner[solid[inner]]
        inner = np.flatnonzero(parent != NONE)
        self.nests = not (end[inner] > end[parent[inner]]).any()
        if not self.nests:
            self._sweep(rows, start, end)
            return
        chains.parent_of_range[rows] = np.append(rows, np.int32(NONE))[parent]
        self.times, self.opened = start[solid], np.append(rows[solid], np.int32(NONE))

    def _sweep(self, rows: np.ndarray, start: np.ndarray, end: np.ndarray) -> None:
        """The nodes that ranges which overlap without nesting leave open, event by event."""
        times, nodes, stack, solid = [], [], [], end > start
        openings = zip(start.tolist(), repeat(True), rows.tolist(), solid.tolist(), strict=False)
        closings = zip(end[solid].tolist(), repeat(False), rows[solid].tolist(), repeat(True), strict=False)
        for time, is_opening, row, is_solid in sorted([*openings, *closings]):
            if is_opening:
                self.chains.parent_of_range[row] = self.chains.node_of(stack)
                stack += [row] * is_solid
            else:
                stack.remove(row)
            times.append(time)
            nodes.append(self.chains.node_of(stack))
        self.times, self.opened = np.array(times, np.int64), np.array([*nodes, NONE], np.int32)

    def at(self, times: np.ndarray) -> np.ndarray:
        """The innermost node that is open at each time, NONE if none is."""
        nodes = self.opened[np.searchsorted(self.times, times, "right") - 1]
        end = self.chains.ranges.end
        return self.chains.outwards(nodes, lambda node, place: end[node] > times[place]) if self.nests else nodes


# Replayed graphs


@dataclass
class Creations:
    """All creations of nodes of graphs in the capture, clones included; and which of them each activity belongs to."""

    time: np.ndarray
    began: np.ndarray  # the begin of the stream capture around the creation; its own time if there was none
    chain: np.ndarray  # the node of the trie of ranges at the creation
    of_activity: np.ndarray  # by activity: index; NONE if it is not replayed, or the creation was not recorded


def find_creations(capture: Capture, launch_row: np.ndarray, chains: Chains) -> Creations | None:
    """The creations, None without any (nsys records them with --cuda-graph-trace=node).

    The nodes of an executable graph are clones of those of a captured graph, whose creation is meant."""
    nodes, activities = capture.nodes, capture.activities
    if not len(nodes.node):
        return None
    process = process_of(nodes.thread)
    created: dict[tuple[int, int], int] = {}  # by process and node: its first creation
    original: dict[tuple[int, int], tuple[int, int]] = {}  # and the node that it is a clone of, in the end
    for event in np.argsort(nodes.time, kind="stable").tolist():
        number = int(process[event])
        node, source = (number, int(nodes.node[event])), (number, int(nodes.original[event]))
        if source[1] != NONE:
            original.setdefault(node, original.get(source, source))
        elif nodes.time[event] >= 0:
            created.setdefault(node, event)
    of_activity = np.full(len(launch_row), NONE, np.int64)
    replayed = np.flatnonzero((activities.node != NONE) & (launch_row != NONE))
    replayed_nodes = zip(activities.process[replayed].tolist(), activities.node[replayed].tolist(), strict=True)
    of_activity[replayed] = [created.get(original.get(node, node), NONE) for node in replayed_nodes]
    chain = chains.at_each(nodes.time, nodes.thread)
    began = capture.calls.stream_capture_begins(nodes.time, process)
    return Creations(nodes.time, np.where(began == NONE, nodes.time, began), chain, of_activity)


def with_replays(
    creations: Creations, launch_node: np.ndarray, launch_row: np.ndarray, parent: np.ndarray, innermost: np.ndarray,
    ranges: Ranges,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """The parents and the ranges of nodes with a further node for each captured range in each replay that repeats none
    at the launch; and the node of each activity. So a captured range counts as opened once in every replay."""

    def chain(node: int) -> list[int]:
        found = []
        while node != NONE:
            found.append(int(innermost[node]))
            node = int(parent[node])
        return found[::-1]

    activity_node, count, known = launch_node.copy(), len(parent), {}
    parents, members = [parent], [innermost]
    for activities in rows_by_value(launch_row, creations.of_activity != NONE).values():  # of each launch of a graph
        activities = activities[np.argsort(creations.of_activity[activities], kind="stable")]
        launch, events = int(launch_node[activities[0]]), creations.of_activity[activities]
        at_launch = [int(ranges.name[one]) for one in chain(launch)]
        key = tuple(at_launch), events.tobytes()
        if key not in known:
            known[key] = _captured(creations, events, at_launch, ranges, chain)
        below, member, place = known[key]
        parents.append(np.where(below == NONE, launch, count + below).astype(np.int32))
        members.append(member.astype(np.int32))
        activity_node[activities] = np.where(place == NONE, launch, count + place)
        count += len(below)
    return np.concatenate(parents), np.concatenate(members), activity_node


def _captured(
    creations: Creations, events: np.ndarray, at_launch: list[int], ranges: Ranges, chain: Callable[[int], list[int]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The captured ranges of a replay that runs the nodes of these creations, below a launch in ranges of these names:
    the place of each one's parent among them (NONE for the launch), the range of each; and by creation the place of its
    innermost one."""
    earliest = events[np.lexsort((events, creations.time[events]))[0]]
    around = [one for one in chain(int(creations.chain[earliest])) if ranges.start[one] < creations.began[earliest]]
    left_out = max((one for one in around if ranges.name[one] in at_launch), default=NONE)
    places: dict[tuple[int, int], int] = {}  # by the place of the parent, and the range
    of_chain: dict[int, int] = {}
    for node in np.unique(creations.chain[events]).tolist():
        captured, place = [one for one in chain(node) if one > left_out], NONE
        for member in captured[_repeated([int(ranges.name[one]) for one in captured], at_launch) :]:
            place = places.setdefault((place, member), len(places))
        of_chain[node] = place
    parents, members = np.array(list(places), np.int64).reshape(-1, 2).T
    return parents, members, np.array([of_chain[node] for node in creations.chain[events].tolist()])


def _repeated(names: list[int], at_launch: list[int]) -> int:
    """How many of the first names repeat, in order, names at the launch; of several equal ones the innermost counts."""
    if not names or names[0] not in at_launch:
        return 0
    level = len(at_launch) - 1 - at_launch[::-1].index(names[0])
    return [*(a == b for a, b in zip(names, at_launch[level:], strict=False)), False].index(False)


# Names


class Paths:
    """Every path of names, numbered; outer ones first. A path is its parent and one more name."""

    def __init__(self, node_parent: np.ndarray, node_name: np.ndarray, names: list[str]):
        """The paths of the nodes with these parents and names, which are indexes into `names`."""
        self.names = [*names, "(launched before the capture)"]
        self.of_node = np.full(len(node_parent) + 1, NO_RANGE, np.int32)  # the last is for no node
        self.levels_of_nodes: list[np.ndarray] = []  # the nodes by depth
        parents, last_names, count = [[NO_RANGE, NO_RANGE]], [[NONE, len(names)]], 2
        pending, is_placed = np.arange(len(node_parent), dtype=np.int32), np.zeros(len(node_parent) + 1, bool)
        is_placed[NONE] = True  # the last is for no node
        while len(pending):
            is_next = is_placed[node_parent[pending]]
            level, pending = pending[is_next], pending[~is_next]
            is_placed[level] = True
            self.levels_of_nodes.append(level)
            key = self.of_node[node_parent[level]].astype(np.int64) * len(self.names) + node_name[level]
            distinct, index = numbered(key)
            self.of_node[level] = np.int32(count) + index
            parents.append(distinct // len(self.names))
            last_names.append(distinct % len(self.names))
            count += len(distinct)
        self.parent, self.last_name = np.concatenate(parents).astype(np.int64), np.concatenate(last_names)
        ends = np.cumsum([len(level) for level in parents]).tolist()
        self.levels = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]

    def __len__(self) -> int:
        return len(self.parent)

    @cached_property
    def tuples(self) -> list[tuple[str, ...]]:
        """By path, its names, outermost first; () for launches in no range."""
        tuples: list[tuple[str, ...]] = [()]
        for parent, name in zip(self.parent[1:].tolist(), self.last_name[1:].tolist(), strict=True):
            tuples.append((*tuples[parent], self.names[name]))
        return tuples

    def is_inside(self, name: str) -> np.ndarray:
        """Whether each path has a range of this name, its own or one around it."""
        code = self.names.index(name) if name in self.names else len(self.names)
        return self.is_below(self.last_name == code)

    def is_below(self, marked: np.ndarray) -> np.ndarray:
        """Whether each path is `marked`, or inside one that is."""
        below = marked.copy()
        for level in self.levels[1:]:
            below[level] |= below[self.parent[level]]
        return below


def path_text(names: Iterable[str]) -> str:
    """The path of these names, outermost first: "a > b"."""
    return SEPARATOR.join(names)


def names_in(text: str) -> tuple[str, ...]:
    """The names in a path; none in "", the path of no range."""
    return tuple(text.split(SEPARATOR)) if text else ()


def innermost(text: str) -> str:
    """The last name of a path; "" if it has none."""
    return text.rpartition(SEPARATOR)[2]
