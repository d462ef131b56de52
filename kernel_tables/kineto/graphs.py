"""Which captured call created the node of each activity of a replayed CUDA graph.

PyTorch's profiler records no nodes: all activities of a replay have the correlation id of its launch. But if the
activities of a graph run one after another, their order is that of their capture, so the n-th activity of a replay
belongs to the n-th call. An activity has no node if that is not certain: the trace has no capture of these calls, or
several; or activities overlap, or differ between replays of the same capture.
"""

from typing import NamedTuple

import numpy as np

from kernel_tables.kineto.trace import CALL, COPY, DEVICE_KINDS, FILL, KERNEL, NONE, Columns, TorchTrace

REPLAY = "GraphLaunch"
MAX_OVERLAP_NS = 500  # by inexact times, activities that run one after another overlap by up to 96 ns on an H200
CREATING_CALLS = {  # words in the names of the calls that create nodes, by kind
    KERNEL: ("LaunchKernel", "LaunchCooperativeKernel"), COPY: ("Memcpy",), FILL: ("Memset",),
}  # fmt: skip


class GraphNodes(NamedTuple):
    """The nodes of the graphs that were replayed. A node is given by the row of the call that created it."""

    creations: np.ndarray  # the nodes
    call_rows: dict[str, np.ndarray]  # by kind, for each activity of that kind its node; NONE if it is unknown, or none


class _ActivitySequence(NamedTuple):
    """The activities for which a capture created nodes, or which a replay ran, in order. `kinds` and `names` are bytes
    of arrays, which can be compared with ==."""

    kinds: bytes  # int8, indices into DEVICE_KINDS
    rows: np.ndarray  # of the calls of a capture; or of the activities of a replay, each among those of its kind
    time_ns: int  # the end of the capture, or the launch of the replay
    names: bytes = b""  # int64, numbers of names
    is_serial: bool = True


def graph_nodes(trace: TorchTrace) -> GraphNodes:
    """The nodes of the activities of replays, if they are certain."""
    call_rows = {kind: np.full(trace.count(kind), NONE) for kind in DEVICE_KINDS}
    creations = [np.empty(0, np.int64)]
    captures = _captures(trace)
    if not captures:
        return GraphNodes(creations[0], call_rows)
    replays_by_capture: dict[int, list[_ActivitySequence]] = {}
    for replay in _replays(trace):
        is_possible = [capture.kinds == replay.kinds and capture.time_ns <= replay.time_ns for capture in captures]
        if sum(is_possible) == 1:
            replays_by_capture.setdefault(is_possible.index(True), []).append(replay)
    for capture_index, replays in replays_by_capture.items():
        calls = captures[capture_index].rows
        if not all(replay.is_serial and replay.names == replays[0].names for replay in replays):
            continue
        creations.append(calls)
        for replay in replays:
            kind_numbers = np.frombuffer(replay.kinds, np.int8)
            for kind_number, kind in enumerate(DEVICE_KINDS):
                is_of_kind = kind_numbers == kind_number
                call_rows[kind][replay.rows[is_of_kind]] = calls[is_of_kind]
    return GraphNodes(np.concatenate(creations), call_rows)


def _captures(trace: TorchTrace) -> list[_ActivitySequence]:
    """The calls of each stream capture that created nodes: calls of launching functions that launched no activity."""
    calls = trace[CALL]
    begins, ends = (calls_named(trace, name) for name in ("StreamBeginCapture", "StreamEndCapture"))
    if not len(begins):
        return []
    kinds = np.full(trace.count(CALL), NONE, np.int8)
    for number, kind in enumerate(DEVICE_KINDS):
        kinds[calls_named(trace, *CREATING_CALLS[kind])] = number
    correlations = np.concatenate([trace[kind]["correlation"] for kind in DEVICE_KINDS])
    creating = np.flatnonzero((kinds != NONE) & ~np.isin(calls["correlation"], correlations))
    creating = creating[np.argsort(calls["start"][creating], kind="stable")]
    start_ns = calls["start"][creating]
    captures = []
    for begin_row in begins.tolist():
        begin_ns = calls["end"][begin_row]
        ends_after = ends[(calls["thread"][ends] == calls["thread"][begin_row]) & (calls["start"][ends] > begin_ns)]
        if len(ends_after):
            end_ns = int(calls["start"][ends_after].min())
            # Of all threads, since autograd's launches into the capture, too. Calls of a capture that runs at the same
            # time are among them; then the kinds are those of no replay, so no node is certain.
            rows = creating[(start_ns > begin_ns) & (start_ns < end_ns)]
            captures.append(_ActivitySequence(kinds=kinds[rows].tobytes(), rows=rows, time_ns=end_ns))
    return captures


def _replays(trace: TorchTrace) -> list[_ActivitySequence]:
    """The activities of each launch of a graph, in the order in which they started."""
    calls = trace[CALL]
    launches = calls_named(trace, REPLAY)
    launched_ns = dict(zip(calls["correlation"][launches].tolist(), calls["start"][launches].tolist(), strict=True))
    launched_ns.pop(NONE, None)  # of launches without a correlation id
    activities = _activities(trace)
    replayed = np.flatnonzero(np.isin(activities["correlation"], list(launched_ns)))
    replayed = replayed[np.lexsort((activities["start"][replayed], activities["correlation"][replayed]))]
    activities = {name: column[replayed] for name, column in activities.items()}
    first = np.flatnonzero(np.diff(activities["correlation"], prepend=NONE))  # activity of each replay
    replays = []
    for replay_slice in map(slice, first, np.append(first[1:], len(replayed))):
        replay = {name: column[replay_slice] for name, column in activities.items()}
        replays.append(
            _ActivitySequence(
                kinds=replay["kind"].tobytes(),
                rows=replay["row"],
                time_ns=launched_ns[int(replay["correlation"][0])],
                names=replay["name"].tobytes(),
                is_serial=bool((replay["end"][:-1] - replay["start"][1:] < MAX_OVERLAP_NS).all()),
            )
        )
    return replays


def _activities(trace: TorchTrace) -> Columns:
    """The activities of all DEVICE_KINDS; `kind` is an index into these, `row` the row in the columns of that kind."""
    columns = {
        name: np.concatenate([trace[kind][name] for kind in DEVICE_KINDS])
        for name in ("start", "end", "name", "correlation")
    }
    counts = [trace.count(kind) for kind in DEVICE_KINDS]
    columns["kind"] = np.repeat(np.arange(len(DEVICE_KINDS), dtype=np.int8), counts)
    return columns | {"row": np.concatenate([np.arange(count) for count in counts])}


def calls_named(trace: TorchTrace, *words: str) -> np.ndarray:
    """The rows of the calls whose names contain one of the words."""
    has_word = [any(word in name for word in words) for name in trace.names.values]
    return np.flatnonzero(np.isin(trace[CALL]["name"], np.flatnonzero(has_word)))
