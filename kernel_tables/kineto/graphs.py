"""Which captured call created the node of each activity of a replayed CUDA graph.

PyTorch's profiler records no nodes: all activities of a replay have the correlation id of its launch. But a graph whose
activities run one after another runs them in the order of their capture, so the n-th activity of a replay belongs to
the n-th call. Where that is not certain, an activity has no node: if the trace has no capture of these calls, or
several, or if activities overlap, or differ between replays of the same capture.
"""

from typing import NamedTuple

import numpy as np

from kernel_tables.kineto.trace import CALL, COPY, FILL, KERNEL, NONE, Columns, TorchTrace

KINDS = (KERNEL, COPY, FILL)
REPLAY = "GraphLaunch"
OVERLAP_NS = 500  # of activities that run one after another, by their times: on an H200, 96 ns were seen
CREATES = {KERNEL: ("LaunchKernel", "LaunchCooperativeKernel"), COPY: ("Memcpy",), FILL: ("Memset",)}


class GraphNodes(NamedTuple):
    """The rows of the calls that created nodes; and by kind of activity the row of its call, NONE if it is unknown."""

    creations: np.ndarray
    of_activities: dict[str, np.ndarray]


class _Sequence(NamedTuple):
    """What a capture created, or what a replay ran, in turn."""

    kinds: bytes
    rows: np.ndarray  # of calls, or of activities of their kind
    time_ns: int  # the end of the capture, or the launch of the replay
    names: bytes = b""
    is_serial: bool = True


def graph_nodes(trace: TorchTrace) -> GraphNodes:
    """The nodes of all activities of replays for which they are certain."""
    of_activities = {kind: np.full(trace.count(kind), NONE) for kind in KINDS}
    captures = _captures(trace)
    replays: dict[int, list[_Sequence]] = {}  # by capture
    for replay in _replays(trace) if captures else ():
        fitting = [n for n, c in enumerate(captures) if c.kinds == replay.kinds and c.time_ns <= replay.time_ns]
        if len(fitting) == 1:
            replays.setdefault(fitting[0], []).append(replay)
    creations = [np.empty(0, np.int64)]
    for number, of_capture in replays.items():
        calls = captures[number].rows
        if all(replay.is_serial and replay.names == of_capture[0].names for replay in of_capture):
            creations.append(calls)
            for replay in of_capture:
                for kind, of_kind in _by_kind(replay.kinds):
                    of_activities[kind][replay.rows[of_kind]] = calls[of_kind]
    return GraphNodes(np.concatenate(creations), of_activities)


def _by_kind(kinds: bytes) -> list[tuple[str, np.ndarray]]:
    numbers = np.frombuffer(kinds, np.int8)
    return [(kind, np.flatnonzero(numbers == number)) for number, kind in enumerate(KINDS)]


def _captures(trace: TorchTrace) -> list[_Sequence]:
    """The calls of each stream capture that would launch something, and launched nothing."""
    calls = trace[CALL]
    begins, ends = (calls_named(trace, name) for name in ("StreamBeginCapture", "StreamEndCapture"))
    if not len(begins):
        return []
    kinds = np.full(trace.count(CALL), NONE, np.int8)
    for number, kind in enumerate(KINDS):
        kinds[calls_named(trace, *CREATES[kind])] = number
    correlations = np.concatenate([trace[kind]["correlation"] for kind in KINDS])
    creating = np.flatnonzero((kinds != NONE) & ~np.isin(calls["correlation"], correlations))
    creating = creating[np.argsort(calls["start"][creating], kind="stable")]
    started = calls["start"][creating]
    captures = []
    for begin in begins.tolist():
        after = ends[(calls["thread"][ends] == calls["thread"][begin]) & (calls["start"][ends] > calls["end"][begin])]
        if len(after):
            ended_ns = int(calls["start"][after].min())
            rows = creating[(started > calls["end"][begin]) & (started < ended_ns)]
            captures.append(_Sequence(kinds[rows].tobytes(), rows, ended_ns))
    return captures


def _replays(trace: TorchTrace) -> list[_Sequence]:
    """The activities of each launch of a graph, by start."""
    calls = trace[CALL]
    launches = calls_named(trace, REPLAY)
    launched_ns = dict(zip(calls["correlation"][launches].tolist(), calls["start"][launches].tolist(), strict=True))
    launched_ns.pop(NONE, None)
    activities = _activities(trace)
    replayed = np.flatnonzero(np.isin(activities["correlation"], list(launched_ns)))
    replayed = replayed[np.lexsort((activities["start"][replayed], activities["correlation"][replayed]))]
    activities = {name: column[replayed] for name, column in activities.items()}
    firsts = np.flatnonzero(np.diff(activities["correlation"], prepend=NONE))
    replays = []
    for first, last in zip(firsts, np.append(firsts[1:], len(replayed)), strict=True):
        of_replay = {name: column[first:last] for name, column in activities.items()}
        replays.append(
            _Sequence(
                of_replay["kind"].tobytes(),
                of_replay["row"],
                launched_ns[int(of_replay["correlation"][0])],
                of_replay["name"].tobytes(),
                bool((of_replay["end"][:-1] - of_replay["start"][1:] < OVERLAP_NS).all()),
            )
        )
    return replays


def _activities(trace: TorchTrace) -> Columns:
    columns = {
        name: np.concatenate([trace[kind][name] for kind in KINDS]) for name in ("start", "end", "name", "correlation")
    }
    counts = [trace.count(kind) for kind in KINDS]
    columns["kind"] = np.repeat(np.arange(len(KINDS), dtype=np.int8), counts)
    return columns | {"row": np.concatenate([np.arange(count) for count in counts])}


def calls_named(trace: TorchTrace, *words: str) -> np.ndarray:
    """The rows of the calls whose names contain one of the words."""
    numbers = [n for n, name in enumerate(trace.names.values) if any(word in name for word in words)]
    return np.flatnonzero(np.isin(trace[CALL]["name"], numbers))
