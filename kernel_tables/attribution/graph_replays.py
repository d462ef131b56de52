"""Which ranges an activity of a replayed CUDA graph belongs to.

When a graph is captured, the ranges that are open at the creation of a node are those of the code that the node runs;
at the replay, a single call launches all nodes. So the chain of a replayed activity begins with the ranges that are
open at the launch of the replay, and continues with those that were open when its node was created. For example:

    warmup > step > forward > GPT     open at the creation of the node; the capture began inside warmup > step
    measure > step                    open at the launch of the replay

gives measure > step > forward > GPT. Ranges around the capture are left out up to the innermost one whose name is open
at the launch. The first range inside the capture is left out if the innermost range at the launch has its name: it is a
module that launches its own graph.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernel_tables.attribution.activities import TABLES, Activities
from kernel_tables.attribution.arrays import factorize, matched
from kernel_tables.attribution.forest import Attribution, chain_members
from kernel_tables.attribution.launches import NO_LAUNCH, rows_of_ids, stream_capture_begins
from kernel_tables.attribution.limits import require_pairs
from kernel_tables.attribution.ranges import NONE, Ranges
from kernel_tables.attribution.rule import RangeAttributor
from kernel_tables.reading.capture import Capture, Columns
from kernel_tables.reading.global_ids import process_of
from kernel_tables.reading.schema import MISSING

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


def node_creations(capture: Capture, activities: Activities) -> NodeCreations | None:
    """The creations that the capture recorded; None if it recorded none (nsys --cuda-graph-trace=node does)."""
    events = capture.graph_node_events()
    if not len(events["node"]):
        return None
    replayed, node = _replayed(capture, activities)
    of_activity = np.full(len(activities), NONE, np.int64)
    for here, in_events in matched(activities.process[replayed], process_of(events["thread"])):
        rows = replayed[here]
        distinct, index = factorize(node[here])
        creation = _creation_rows({name: column[in_events] for name, column in events.items()}, distinct)
        of_activity[rows] = np.append(in_events, NONE)[creation][index]
    began_ns = stream_capture_begins(capture, events["created"], process_of(events["thread"]))
    began_ns = np.where(began_ns == NONE, events["created"], began_ns)
    return NodeCreations(events["created"], events["thread"], began_ns, of_activity)


def _replayed(capture: Capture, activities: Activities) -> tuple[np.ndarray, np.ndarray]:
    """The activities that are part of a replay whose launch is in the capture, and the node of each."""
    node = np.concatenate([table["node"] for table in capture.graph_nodes(*TABLES)])
    replayed = np.flatnonzero((node != MISSING) & activities.launched)
    return replayed, node[replayed]


def _creation_rows(events: Columns, nodes: np.ndarray) -> np.ndarray:
    """The row of the creation of each node, or of the node that it was cloned from; NONE if that precedes the capture.

    An executable graph has clones of the nodes of the graph that it was instantiated from.
    """
    is_clone = events["original"] != MISSING
    cloned, created = np.flatnonzero(is_clone), np.flatnonzero(~is_clone & (events["created"] >= 0))
    for _ in range(MAX_CLONES):
        row = rows_of_ids(events["node"][cloned], events["created"][cloned], nodes)
        if (row == NO_LAUNCH).all():
            break
        nodes = np.where(row == NO_LAUNCH, nodes, events["original"][cloned][row] if len(cloned) else nodes)
    return np.append(created, NONE)[rows_of_ids(events["node"][created], events["created"][created], nodes)]


def attribute_with_replays(
    attributor: RangeAttributor, activities: Activities, creations: NodeCreations, ranges: Ranges
) -> Attribution:
    """The attribution of launches and replayed activities. A creation is attributed as a launch is."""
    threads, index = factorize(np.append(activities.threads, creations.thread))
    known, count = len(activities.threads), len(activities)
    launch_thread_index = np.append(index[:known], NONE)[activities.thread_index]
    joint = attributor.attribution(
        np.append(activities.launch_ns, creations.time_ns), np.append(launch_thread_index, index[known:]), threads
    )
    launch_node, creation_node = joint.launch_node[:count], joint.launch_node[count:]
    attribution = Attribution(joint.parent, joint.range, launch_node, launch_node, joint.first_replayed)
    return _with_replays(attribution, creations, creation_node, activities, ranges)


def _with_replays(
    attribution: Attribution,
    creations: NodeCreations,
    creation_node: np.ndarray,
    activities: Activities,
    ranges: Ranges,
) -> Attribution:
    """The attribution with the chains of replayed activities, given the node of the ranges at each creation.

    Every launch of a graph has its own nodes: a range that was captured counts as opened once in each replay.
    """
    parent, innermost, count = attribution.parent, attribution.range, len(attribution.parent)
    rows = np.flatnonzero(creations.of_activity != NONE)
    creation = creations.of_activity[rows]
    launches, replay = factorize(activities.launch_row[rows])
    order = np.lexsort((creations.time_ns[creation], replay))
    first = order[np.searchsorted(replay[order], np.arange(len(launches)))]  # the activity of each replay's first node
    launch_node = attribution.launch_node[rows[first]].astype(np.int64)
    last_left_out = _last_left_out(attribution, ranges, launch_node, creations, creation_node, creation[first])

    def keys_of(replay: np.ndarray, node: np.ndarray) -> np.ndarray:
        """(replay, node of a captured range) as one number, NONE if the range is left out."""
        return np.where((node != NONE) & (innermost[node] > last_left_out[replay]), replay * count + node, NONE)

    key = keys_of(replay.astype(np.int64), creation_node[creation])
    keys = frontier = np.unique(key[key != NONE])
    while len(frontier):
        above = keys_of(frontier // count, parent[frontier % count])
        frontier = np.setdiff1d(above[above != NONE], keys)
        keys = np.union1d(keys, frontier)
        require_pairs(len(keys), "ranges in replays of CUDA graphs")
    replay_of, captured = np.divmod(keys, count)
    above = keys_of(replay_of, parent[captured])
    name_at_launch = np.append(ranges.name[innermost], NONE)[launch_node]
    is_repeated = (above == NONE) & (ranges.name[innermost[captured]] == name_at_launch[replay_of])
    node = np.where(is_repeated, launch_node[replay_of], count - 1 + np.cumsum(~is_repeated))
    parents = np.where(above == NONE, launch_node[replay_of], node[np.searchsorted(keys, above) % max(len(keys), 1)])
    activity_node = attribution.launch_node.copy()
    activity_node[rows[key != NONE]] = node[np.searchsorted(keys, key[key != NONE])]
    return Attribution(
        parent=np.append(parent, parents[~is_repeated]),
        range=np.append(innermost, innermost[captured[~is_repeated]]),
        launch_node=attribution.launch_node,
        activity_node=activity_node,
        first_replayed=count,
    )


def _last_left_out(
    attribution: Attribution,
    ranges: Ranges,
    launch_node: np.ndarray,
    creations: NodeCreations,
    creation_node: np.ndarray,
    first_creation: np.ndarray,
) -> np.ndarray:
    """By replay, the innermost range around the capture whose name is open at the launch, NONE if there is none."""
    names = int(ranges.name.max(initial=0)) + 1
    at_launch = chain_members(attribution.parent, attribution.range, launch_node)
    open_names = at_launch.query_index * names + ranges.name[at_launch.range_index]
    replay, number = chain_members(attribution.parent, attribution.range, creation_node[first_creation])
    is_around = ranges.start_ns[number] < creations.capture_began_ns[first_creation][replay]
    is_left_out = is_around & np.isin(replay * names + ranges.name[number], open_names)
    last = np.full(len(launch_node), NONE)
    np.maximum.at(last, replay[is_left_out], number[is_left_out])
    return last
