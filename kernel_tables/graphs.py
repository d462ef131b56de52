"""Which ranges an activity of a replayed CUDA graph belongs to.

When a graph is captured, the ranges that are open at the creation of a node are those of the code that the node runs;
at the replay, a single call launches all nodes. So the chain of a replayed activity begins with the ranges at the
launch of the replay, and continues with those that were open when its node was created. For example:

    warmup > step > forward > GPT     open at the creation of the node; the capture began inside warmup > step
    measure > step                    open at the launch of the replay

gives measure > step > forward > GPT. Ranges around the capture are left out up to the innermost one whose name is open
at the launch. The first ranges inside the capture are left out if they repeat ranges at the launch: those of a module
that launches its own graph, `forward > GPT` captured and `step > forward > GPT` at the launch.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernel_tables.capture import NONE, Calls, Capture, Ranges, process_of, rows_by_value


@dataclass
class Creations:
    """All creations of nodes of graphs in the capture, clones included; and which of them each activity belongs to."""

    time: np.ndarray
    began: np.ndarray  # the begin of the stream capture around the creation; its own time if there was none
    chain: np.ndarray  # the node of the trie of ranges at the creation
    of_activity: np.ndarray  # by activity: index; NONE if it is not replayed, or the creation was not recorded


def creations(capture: Capture, launch_row: np.ndarray, chains) -> Creations | None:
    """The creations, None without any (nsys records them with --cuda-graph-trace=node); `chains` is attribution.Chains.

    The nodes of an executable graph are clones of those of a captured graph, whose creation is meant.
    """
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
    began = stream_capture_begins(capture.calls, nodes.time, process)
    return Creations(nodes.time, np.where(began == NONE, nodes.time, began), chain, of_activity)


def stream_capture_begins(calls: Calls, times: np.ndarray, process: np.ndarray) -> np.ndarray:
    """The begin of the stream capture that is running in the process at each time, NONE if none is running."""
    began = np.full(len(times), NONE, np.int64)
    begins, ends = calls.named("StreamBeginCapture"), calls.named("StreamEndCapture")
    process_of_call = calls.process[calls.thread]
    for number in np.unique(process_of_call[begins]).tolist():
        mine = np.flatnonzero(process == number)
        starts = np.sort(calls.start[begins[process_of_call[begins] == number]])
        stops = np.sort(calls.start[ends[process_of_call[ends] == number]])
        begun = np.searchsorted(starts, times[mine], "right")
        is_open = begun > np.searchsorted(stops, times[mine], "right")
        began[mine[is_open]] = starts[begun[is_open] - 1]
    return began


def with_replays(
    creations: Creations, launch_node: np.ndarray, launch_row: np.ndarray, parent: np.ndarray, innermost: np.ndarray,
    ranges: Ranges,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """The parents and the ranges of nodes with a further node for each captured range in each replay that repeats none
    at the launch; and the node of each activity. So a captured range counts as opened once in every replay."""

    def chain(node: int) -> list[int]:
        """The ranges of a node, outermost first."""
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
