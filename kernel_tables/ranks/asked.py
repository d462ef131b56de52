"""What NCCL was asked for by the calls that launched its kernels.

A call launches its own kernel, unless it stands between ncclGroupStart and ncclGroupEnd: then the outermost of these
launches what all calls between them ask for (NCCL's manual, "Group Calls").
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from kernel_tables.reading.nccl_calls import MOST_BYTES, NcclCall

OPERATIONS = {
    "ncclAllReduce": "all-reduce",
    "ncclAllGather": "all-gather",
    "ncclReduceScatter": "reduce-scatter",
    "ncclBroadcast": "broadcast",
    "ncclBcast": "broadcast",
    "ncclReduce": "reduce",
    "ncclAlltoAll": "all-to-all",
    "ncclAllToAll": "all-to-all",
    "ncclGather": "gather",
    "ncclScatter": "scatter",
    "ncclSend": "send-recv",
    "ncclRecv": "send-recv",
}
GROUP_START, GROUP_END = "ncclGroupStart", "ncclGroupEnd"


class Asked(NamedTuple):
    """What a kernel was to do; None for what the calls do not tell, or do not agree on. NCCL counts the bytes of
    all-gather, reduce-scatter, all-to-all, gather and scatter `by_rank`: those of one alone."""

    operation: str | None = None
    bytes: int | None = None
    communicator: int | None = None
    by_rank: bool = True


class _Launch(NamedTuple):
    """A call that launches, and the calls whose work that is."""

    start_ns: int
    end_ns: int
    calls: tuple[NcclCall, ...]


def asked(calls: Iterable[NcclCall], launches: Sequence[tuple[int, int]]) -> list[Asked]:
    """For each of LAUNCHES, the (thread, time) of every kernel of NCCL, what it was asked for; nothing is known of one
    outside of all CALLS (by thread, then time), and no bytes of several that one group launched."""
    by_thread = {thread: _launching(list(own)) for thread, own in groupby(calls, key=lambda call: call.thread)}
    found = [_launch_at(by_thread.get(thread, []), at_ns) for thread, at_ns in launches]
    kernels = Counter(id(launch) for launch in found if launch)
    return [_asked(launch.calls, kernels[id(launch)]) if launch else Asked() for launch in found]


def _launching(calls: list[NcclCall]) -> list[_Launch]:
    """The calls of one thread that launch, in order of time."""
    found: list[_Launch] = []
    depth, waiting, is_whole, last_ns = 0, [], True, -1
    for call in calls:
        if call.end_ns <= last_ns:
            continue  # what NCCL calls itself, inside the one before
        last_ns = call.end_ns
        if call.name == GROUP_START:
            depth += 1
        elif call.name == GROUP_END:
            is_whole = is_whole and depth > 0  # else the group began before the capture
            depth = max(depth - 1, 0)
            if depth == 0:
                found.append(_Launch(call.start_ns, call.end_ns, tuple(waiting) if is_whole else ()))
                waiting, is_whole = [], True
        elif depth:
            waiting.append(call)
        else:
            found.append(_Launch(call.start_ns, call.end_ns, (call,)))
    return found


def _launch_at(launches: list[_Launch], at_ns: int) -> _Launch | None:
    place = bisect_right(launches, at_ns, key=lambda launch: launch.start_ns) - 1
    return launches[place] if place >= 0 and at_ns < launches[place].end_ns else None


def _asked(calls: Sequence[NcclCall], kernels: int) -> Asked:
    operations, communicators = {OPERATIONS.get(call.name) for call in calls}, {call.communicator for call in calls}
    sizes = [call.bytes for call in calls]
    knows_bytes = bool(sizes) and None not in sizes and kernels == 1 and sum(sizes) <= MOST_BYTES
    return Asked(_only(operations), sum(sizes) if knows_bytes else None, _only(communicators))


def _only(values: set) -> str | int | None:
    return next(iter(values)) if len(values) == 1 else None
