"""Which ranges an activity of a replayed CUDA graph belongs to.

When a graph is captured, the ranges that are open at the creation of a node are those of the code that the node runs;
at the replay, a single call launches all nodes. So the chain of a replayed activity begins with the ranges that are
open at the launch of the replay, and continues with those that were open when its node was created. For example:

    warmup > step > forward > GPT     open at the creation of the node; the capture began inside warmup > step
    measure > step                    open at the launch of the replay

gives measure > step > forward > GPT. Ranges around the capture are left out up to the innermost one whose name is open
at the launch. The first ranges inside the capture are left out if they repeat ranges at the launch: those of a module
that launches its own graph, `forward > GPT` captured and `step > forward > GPT` at the launch.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution import arrays, limits, rule
from kernel_tables.attribution.activities import TABLES, Activities
from kernel_tables.attribution.forest import Attribution, chain_members
from kernel_tables.attribution.launches import NO_LAUNCH, rows_of_ids, stream_capture_begins
from kernel_tables.attribution.ranges import NONE, Ranges
from kernel_tables.reading import global_ids, schema
from kernel_tables.reading.capture import Capture, Columns

MAX_CLONES = 100  # a graph is instantiated once, and cloned a few times before


class NodeCreations(NamedTuple):
    """The creation of each node of a graph that runs in the capture, and the activities of these nodes."""

    time_ns: np.ndarray
    thread: np.ndarray  # global id
    capture_began_ns: np.ndarray  # of the stream capture that created it; the creation itself if there was none
    of_activity: np.ndarray  # activity -> creation, NONE if it is not replayed, or the creation was not recorded


def replayed_without_creation(capture: Capture, activities: Activities) -> int:
    """The number of replayed activities whose nodes were created outside the capture."""
    if not len(capture.calls("cudaGraphLaunch", "cuGraphLaunch")["start"]):
        return 0
    creations = node_creations(capture, activities)
    known = 0 if creations is None else int((creations.of_activity != NONE).sum())
    return len(_replayed(capture, activities)[0]) - known


def replayed_in_torch_trace(capture: Capture, activities: Activities) -> int:
    """The number of replayed activities without a node in a capture of PyTorch's profiler, which does not record nodes
    (kineto/graphs.py infers those that are certain); 0 in others."""
    if capture.metadata.get("CAPTURE_BACKEND") != "torch":
        return 0
    launches = capture.calls("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")
    is_replayed = np.isin(activities.correlation, launches["correlation"])
    is_replayed[_replayed(capture, activities)[0]] = False
    return int(is_replayed.sum())


def node_creations(capture: Capture, activities: Activities) -> NodeCreations | None:
    """The creations in the capture; None without any (nsys records them with --cuda-graph-trace=node)."""
    events = capture.graph_node_events()
    if not len(events["node"]):
        return None
    replayed, node = _replayed(capture, activities)
    of_activity = np.full(len(activities), NONE, np.int64)
    for here, in_events in arrays.matched(activities.process[replayed], global_ids.process_of(events["thread"])):
        rows = replayed[here]
        distinct, index = arrays.factorize(node[here])
        creation = _creation_rows({name: column[in_events] for name, column in events.items()}, distinct)
        of_activity[rows] = np.append(in_events, NONE)[creation][index]
    began_ns = stream_capture_begins(capture, events["created"], global_ids.process_of(events["thread"]))
    began_ns = np.where(began_ns == NONE, events["created"], began_ns)
    return NodeCreations(events["created"], events["thread"], began_ns, of_activity)


def _replayed(capture: Capture, activities: Activities) -> tuple[np.ndarray, np.ndarray]:
    """The activities that are part of a replay whose launch is in the capture, and the node of each."""
    node = np.concatenate([capture.selected(table, schema.GRAPH_NODE)["node"] for table in TABLES])
    replayed = np.flatnonzero((node != schema.MISSING) & activities.launched)
    return replayed, node[replayed]


def _creation_rows(events: Columns, nodes: np.ndarray) -> np.ndarray:
    """The row of the creation of each node, or of the node that it was cloned from; NONE if that precedes the capture.

    An executable graph has clones of the nodes of the graph that it was instantiated from.
    """
    is_clone = events["original"] != schema.MISSING
    cloned, created = np.flatnonzero(is_clone), np.flatnonzero(~is_clone & (events["created"] >= 0))
    for _ in range(MAX_CLONES):
        row = rows_of_ids(events["node"][cloned], events["created"][cloned], nodes)
        if (row == NO_LAUNCH).all():
            break
        nodes = np.where(row == NO_LAUNCH, nodes, events["original"][cloned][row] if len(cloned) else nodes)
    return np.append(created, NONE)[rows_of_ids(events["node"][created], events["created"][created], nodes)]


def attribute_with_replays(
    attributor: rule.RangeAttributor, activities: Activities, creations: NodeCreations, ranges: Ranges
) -> Attribution:
    """The attribution of launches and replayed activities. A creation is attributed as a launch is."""
    threads, index = arrays.factorize(np.append(activities.threads, creations.thread))
    known, count = len(activities.threads), len(activities)
    launch_thread_index = np.append(index[:known], NONE)[activities.thread_index]
    joint = attributor.attribution(
        np.append(activities.launch_ns, creations.time_ns), np.append(launch_thread_index, index[known:]), threads
    )
    launch_node, creation_node = joint.launch_node[:count], joint.launch_node[count:]
    attribution = Attribution(joint.parent, joint.range, launch_node, launch_node, joint.first_replayed)
    replays = _replays(attribution, creations, activities)
    last_left_out = _last_left_out(attribution, replays, creations, creation_node, ranges)
    return _with_replays(attribution, replays, creation_node, last_left_out, ranges)


class _Replays(NamedTuple):
    """The replayed activities, and the launches that replay them, numbered."""

    activity: np.ndarray
    creation: np.ndarray  # of the node of each activity
    replay: np.ndarray  # the number of the launch of each activity
    launch_node: np.ndarray  # by launch
    first_creation: np.ndarray  # by launch, the earliest creation of its nodes


def _replays(attribution: Attribution, creations: NodeCreations, activities: Activities) -> _Replays:
    activity = np.flatnonzero(creations.of_activity != NONE)
    creation = creations.of_activity[activity]
    launches, replay = arrays.factorize(activities.launch_row[activity])
    order = np.lexsort((creations.time_ns[creation], replay))
    first = order[np.searchsorted(replay[order], np.arange(len(launches)))]
    launch_node = attribution.launch_node[activity[first]].astype(np.int64)
    return _Replays(activity, creation, replay.astype(np.int64), launch_node, creation[first])


def _last_left_out(
    attribution: Attribution, replays: _Replays, creations: NodeCreations, creation_node: np.ndarray, ranges: Ranges
) -> np.ndarray:
    """By launch, the innermost range around the capture whose name is open at the launch, NONE if there is none."""
    names = int(ranges.name.max(initial=0)) + 1
    at_launch = chain_members(attribution.parent, attribution.range, replays.launch_node)
    open_names = at_launch.query_index * names + ranges.name[at_launch.range_index]
    first = replays.first_creation
    replay, number = chain_members(attribution.parent, attribution.range, creation_node[first])
    is_around = ranges.start_ns[number] < creations.capture_began_ns[first][replay]
    is_left_out = is_around & np.isin(replay * names + ranges.name[number], open_names)
    last = np.full(len(first), NONE)
    np.maximum.at(last, replay[is_left_out], number[is_left_out])
    return last


def _with_replays(
    attribution: Attribution, replays: _Replays, creation_node: np.ndarray, last_left_out: np.ndarray, ranges: Ranges
) -> Attribution:
    """The attribution with a node for each pair of a replay and a captured range that is not left out.

    So a captured range counts as opened once in every replay. A pair is written as one number, `key`.
    """
    parent, innermost, count = attribution.parent, attribution.range, len(attribution.parent)

    def keys_of(replay: np.ndarray, node: np.ndarray) -> np.ndarray:
        """The key of each pair, NONE if the range is left out."""
        return np.where((node != NONE) & (innermost[node] > last_left_out[replay]), replay * count + node, NONE)

    def keys_above(keys: np.ndarray) -> np.ndarray:
        return keys_of(keys // count, parent[keys % count])

    key = keys_of(replays.replay, creation_node[replays.creation])
    is_captured = key != NONE
    activity_keys, index = arrays.factorize(key[is_captured])
    keys = _with_all_above(activity_keys, keys_above)
    above, launch_node = keys_above(keys), replays.launch_node[keys // count]
    captured = innermost[keys % count]
    is_repeated = _repeated(attribution, replays, ranges, keys // count, ranges.name[captured], above, keys)
    node = np.where(is_repeated, launch_node, count - 1 + np.cumsum(~is_repeated))
    parents = np.where(above == NONE, launch_node, node[np.searchsorted(keys, above) % max(len(keys), 1)])
    activity_node = attribution.launch_node.copy()
    activity_node[replays.activity[is_captured]] = node[np.searchsorted(keys, activity_keys)][index]
    return Attribution(
        parent=np.append(parent, parents[~is_repeated]),
        range=np.append(innermost, captured[~is_repeated]),
        launch_node=attribution.launch_node,
        activity_node=activity_node,
        first_replayed=count,
    )


def _repeated(
    attribution: Attribution, replays: _Replays, ranges: Ranges, replay: np.ndarray, name: np.ndarray, above, keys
) -> np.ndarray:
    """Whether each pair repeats a range that is open at the launch: outermost captured ranges by their names, and inner
    ones if they follow one another as at the launch."""
    names, node = [], replays.launch_node
    while (node != NONE).any():
        names.append(np.where(node == NONE, NONE, ranges.name[attribution.range[node]]))
        node = np.where(node == NONE, NONE, attribution.parent[node])
    at_launch = np.stack([*names, np.full(len(node), NONE)])  # by distance from the launch, then by replay
    distance = np.full(len(keys), NONE)  # of the repeated range from the launch
    outermost, inner = np.flatnonzero(above == NONE), np.flatnonzero(above != NONE)
    for place in reversed(range(len(names))):  # of several ranges of one name, the innermost
        distance[outermost[at_launch[place, replay[outermost]] == name[outermost]]] = place
    around = np.searchsorted(keys, above[inner])
    while len(inner):
        next_place = np.maximum(distance[around] - 1, -1)
        follows = (next_place >= 0) & (at_launch[next_place, replay[inner]] == name[inner])
        distance[inner[follows]] = next_place[follows]
        inner, around = inner[~follows], around[~follows]
        if not follows.any():
            break
    return distance != NONE


def _with_all_above(keys: np.ndarray, keys_above: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The keys and, transitively, those above them, ascending."""
    added = keys
    while len(added):
        above = keys_above(added)
        added = np.setdiff1d(above[above != NONE], keys)
        keys = np.union1d(keys, added)
        limits.require_pairs(len(keys), "ranges in replays of CUDA graphs")
    return keys
