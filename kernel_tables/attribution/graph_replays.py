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
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kernel_tables import global_ids
from kernel_tables.attribution import arrays, limits, rule
from kernel_tables.attribution.activities import TABLES, Activities
from kernel_tables.attribution.forest import Attribution, chain_members
from kernel_tables.attribution.launches import NO_CAPTURE, NO_ROW, rows_of_ids, stream_capture_begins
from kernel_tables.attribution.ranges import NONE, Ranges
from kernel_tables.reading import schema
from kernel_tables.reading.capture import Capture, Columns

MAX_CLONES = 100  # a graph is instantiated once, and cloned a few times before


class NodeCreations(NamedTuple):
    """All creations of nodes of graphs in the capture, clones included; and which of them each activity belongs to."""

    time_ns: np.ndarray
    thread: np.ndarray  # global id
    capture_began_ns: np.ndarray  # the begin of the stream capture around the creation; its own time if there was none
    creation_of_activity: np.ndarray  # index; NONE if the activity is not replayed, or the creation was not recorded


def replayed_without_creation(capture: Capture, activities: Activities) -> int:
    """The number of replayed activities whose nodes were created outside the capture."""
    if not len(capture.calls("cudaGraphLaunch", "cuGraphLaunch")["start"]):
        return 0
    creations = node_creations(capture, activities)
    known = 0 if creations is None else np.count_nonzero(creations.creation_of_activity != NONE)
    return np.count_nonzero(_replayed_nodes(capture, activities) != schema.MISSING) - known


def replayed_in_torch_trace(capture: Capture, activities: Activities) -> int:
    """The number of replayed activities without a node in a capture of PyTorch's profiler, which does not record nodes
    (kineto/graphs.py infers those that are certain); 0 in others."""
    if capture.metadata.get("CAPTURE_BACKEND") != "torch":
        return 0
    launches = capture.calls("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")
    is_replayed = np.isin(activities.correlation, launches["correlation"])
    return np.count_nonzero(is_replayed & (_replayed_nodes(capture, activities) == schema.MISSING))


def node_creations(capture: Capture, activities: Activities) -> NodeCreations | None:
    """The creations in the capture; None without any (nsys records them with --cuda-graph-trace=node)."""
    events = capture.graph_node_events()
    if not len(events["node"]):
        return None
    node, event_process = _replayed_nodes(capture, activities), global_ids.process_of(events["thread"])
    creation_of_activity = np.full(len(activities), NONE, np.int64)
    replayed = np.flatnonzero(node != schema.MISSING)
    for positions, event_rows in arrays.positions_by_key(activities.process[replayed], event_process):
        rows = replayed[positions]
        nodes, index = arrays.factorize(node[rows])
        creation = _creation_rows({name: column[event_rows] for name, column in events.items()}, nodes)
        creation_of_activity[rows] = np.append(event_rows, NONE)[creation][index]
    capture_began_ns = stream_capture_begins(capture, events["created"], event_process)
    capture_began_ns = np.where(capture_began_ns == NO_CAPTURE, events["created"], capture_began_ns)
    return NodeCreations(events["created"], events["thread"], capture_began_ns, creation_of_activity)


def _replayed_nodes(capture: Capture, activities: Activities) -> np.ndarray:
    """By activity: its graph node if it is part of a replay whose launch is in the capture, else MISSING."""
    node = np.concatenate([capture.read_columns(table, schema.GRAPH_NODE_COLUMN)["node"] for table in TABLES])
    return np.where(activities.has_launch, node, schema.MISSING)


def _creation_rows(events: Columns, nodes: np.ndarray) -> np.ndarray:
    """The row in `events` of the creation of each node, NONE if that was not recorded.

    The nodes of an executable graph are clones of those of a captured graph, whose creation is meant.
    """
    is_clone = events["original"] != schema.MISSING
    cloned, created = np.flatnonzero(is_clone), np.flatnonzero(~is_clone & (events["created"] >= 0))
    for _ in range(MAX_CLONES):
        row = rows_of_ids(events["node"][cloned], events["created"][cloned], nodes)
        if (row == NO_ROW).all():
            break
        nodes = np.where(row == NO_ROW, nodes, events["original"][cloned][row])  # from a clone to its original
    return np.append(created, NONE)[rows_of_ids(events["node"][created], events["created"][created], nodes)]


def attribute_with_replays(
    attributor: rule.RangeAttributor, activities: Activities, creations: NodeCreations, ranges: Ranges
) -> Attribution:
    """The attribution of launches and replayed activities. Creations of nodes are attributed as launches are."""
    threads, index = arrays.factorize(np.append(activities.threads, creations.thread))
    thread_count, count = len(activities.threads), len(activities)
    launch_thread_index = np.append(index[:thread_count], NONE)[activities.thread_index]
    joint = attributor.attribution(
        np.append(activities.launch_ns, creations.time_ns),
        np.append(launch_thread_index, index[thread_count:]),
        threads,
    )
    launch_node, creation_node = joint.launch_node[:count], joint.launch_node[count:]
    attribution = replace(joint, launch_node=launch_node, activity_node=launch_node)
    replays = _replays(attribution, creations, activities)
    innermost_left_out = _innermost_left_out(attribution, replays, creations, creation_node, ranges)
    return _with_replays(attribution, replays, creation_node, innermost_left_out, ranges)


class _Replays(NamedTuple):
    """The replayed activities whose creations are known, and their replays. A replay is a launch of a graph."""

    activity: np.ndarray  # of each replayed activity, its index
    creation: np.ndarray  # of each replayed activity, the index of the creation of its graph node
    replay: np.ndarray  # of each replayed activity, the number of its replay, from 0
    launch_node: np.ndarray  # by replay, the node in the forest of ranges at its launch
    first_creation: np.ndarray  # by replay, the earliest creation of its graph nodes


def _replays(attribution: Attribution, creations: NodeCreations, activities: Activities) -> _Replays:
    activity = np.flatnonzero(creations.creation_of_activity != NONE)
    creation = creations.creation_of_activity[activity]
    launches, replay = arrays.factorize(activities.launch_row[activity])
    order = np.lexsort((creations.time_ns[creation], replay))
    first = order[np.searchsorted(replay[order], np.arange(len(launches)))]
    launch_node = attribution.launch_node[activity[first]].astype(np.int64)
    return _Replays(activity, creation, replay.astype(np.int64), launch_node, creation[first])


def _innermost_left_out(
    attribution: Attribution, replays: _Replays, creations: NodeCreations, creation_node: np.ndarray, ranges: Ranges
) -> np.ndarray:
    """By replay, the innermost range around the capture whose name is open at the launch, NONE if there is none."""
    name_count = int(ranges.name.max(initial=0)) + 1
    at_launch = chain_members(attribution.parent, attribution.range, replays.launch_node)
    open_names = at_launch.query_index * name_count + ranges.name[at_launch.range_index]
    first = replays.first_creation
    replay, range_index = chain_members(attribution.parent, attribution.range, creation_node[first])
    is_around = ranges.start_ns[range_index] < creations.capture_began_ns[first][replay]
    is_left_out = is_around & np.isin(replay * name_count + ranges.name[range_index], open_names)
    innermost = np.full(len(first), NONE)
    np.maximum.at(innermost, replay[is_left_out], range_index[is_left_out])  # numbers of ranges ascend inwards
    return innermost


class _Pairs(NamedTuple):
    """Pairs of a replay and a range that was open when one of its nodes was created, and is not left out."""

    replay: np.ndarray
    range: np.ndarray
    above: np.ndarray  # index of the pair with the range around it, NONE for an outermost one


def _with_replays(
    attribution: Attribution, replays: _Replays, creation_node: np.ndarray, innermost_left_out: np.ndarray,
    ranges: Ranges,
) -> Attribution:  # fmt: skip
    """The attribution with a further node for each of _Pairs whose range repeats none at the launch (_is_repeated).

    So a captured range counts as opened once in every replay. A key is one number for a replay and the node of a
    captured range together.
    """
    parent, innermost, count = attribution.parent, attribution.range, len(attribution.parent)

    def keys_of(replay: np.ndarray, node: np.ndarray) -> np.ndarray:
        """The key of each replay and node, NONE if the range is left out or there is none."""
        return np.where((node != NONE) & (innermost[node] > innermost_left_out[replay]), replay * count + node, NONE)

    def keys_above(keys: np.ndarray) -> np.ndarray:
        replay, node = np.divmod(keys, count)
        return keys_of(replay, parent[node])

    key = keys_of(replays.replay, creation_node[replays.creation])
    has_captured_ranges = key != NONE
    activity_keys, index = arrays.factorize(key[has_captured_ranges])
    keys = _with_all_above(activity_keys, keys_above)
    replay, captured_node = np.divmod(keys, count)
    key_above, launch_node = keys_above(keys), replays.launch_node[replay]
    above = np.where(key_above == NONE, NONE, np.searchsorted(keys, key_above))
    pairs = _Pairs(replay, innermost[captured_node], above)
    is_repeated = _is_repeated(pairs, attribution, replays, ranges)
    pair_node = np.where(is_repeated, launch_node, count - 1 + np.cumsum(~is_repeated))  # further nodes from count on
    pair_parent = np.where(above == NONE, launch_node, pair_node[above])
    activity_node = attribution.launch_node.copy()
    activity_node[replays.activity[has_captured_ranges]] = pair_node[np.searchsorted(keys, activity_keys)][index]
    return Attribution(
        parent=np.append(parent, pair_parent[~is_repeated]),
        range=np.append(innermost, pairs.range[~is_repeated]),
        launch_node=attribution.launch_node,
        activity_node=activity_node,
        first_replayed=count,
    )


def _is_repeated(pairs: _Pairs, attribution: Attribution, replays: _Replays, ranges: Ranges) -> np.ndarray:
    """Whether the range of each pair repeats one that is open at the launch of its replay.

    An outermost captured range does if a range at the launch has its name. An inner one does if the range around it
    repeats one at the launch, and the next inner range at the launch has its name.
    """
    names, node = [], replays.launch_node
    while (node != NONE).any():
        names.append(np.where(node == NONE, NONE, ranges.name[attribution.range[node]]))
        node = np.where(node == NONE, NONE, attribution.parent[node])
    names_at_launch = np.stack([*names, np.full(len(node), NONE)])  # by level, 0 for the innermost, and replay
    name = ranges.name[pairs.range]
    level = np.full(len(name), NONE)  # of the range at the launch that the pair repeats
    outermost, inner = np.flatnonzero(pairs.above == NONE), np.flatnonzero(pairs.above != NONE)
    for launch_level in reversed(range(len(names))):  # of several ranges of one name, the innermost counts
        has_name = names_at_launch[launch_level, pairs.replay[outermost]] == name[outermost]
        level[outermost[has_name]] = launch_level
    while len(inner):
        next_level = np.maximum(level[pairs.above[inner]] - 1, NONE)
        follows = (next_level != NONE) & (names_at_launch[next_level, pairs.replay[inner]] == name[inner])
        level[inner[follows]] = next_level[follows]
        inner = inner[~follows]
        if not follows.any():
            break
    return level != NONE


def _with_all_above(keys: np.ndarray, keys_above: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The keys and, transitively, those above them, ascending."""
    added = keys
    while len(added):
        above = keys_above(added)
        added = np.setdiff1d(above[above != NONE], keys)
        keys = np.union1d(keys, added)
        limits.require_pairs(len(keys), "ranges in replays of CUDA graphs")
    return keys
