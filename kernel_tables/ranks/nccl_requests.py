"""The operation that each kernel of NCCL was requested to do, by the calls that launched it.

A call launches its own kernel, unless it is between ncclGroupStart and ncclGroupEnd: then the outermost ncclGroupEnd
launches what all calls between them request (NCCL's manual, "Group Calls").
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from kernel_tables.kineto.nccl_kernels import operation_named
from kernel_tables.reading.nccl_calls import MOST_BYTES, NcclCall

GROUP_START, GROUP_END = "ncclGroupStart", "ncclGroupEnd"


class CollectiveRequest(NamedTuple):
    """The operation that a kernel was requested to do; fields that its calls lack or disagree on are None."""

    operation: str | None = None
    bytes: int | None = None
    communicator: int | None = None
    by_rank: bool = True  # of all-gather, reduce-scatter, all-to-all, gather and scatter, bytes of one rank are counted


class _Launch(NamedTuple):
    """A call that launches, and the calls that request what it launches."""

    start_ns: int
    end_ns: int
    calls: tuple[NcclCall, ...]


def match_requests(calls: Iterable[NcclCall], launches: Sequence[tuple[int, int]]) -> list[CollectiveRequest]:
    """The request of each kernel of NCCL, given by the (thread, time) of its launch; `calls` are by thread, then time.

    A request is empty if its launch is in none of `calls`; bytes are unknown if one group launched several kernels.
    """
    by_thread = {thread: _launches(thread_calls) for thread, thread_calls in groupby(calls, attrgetter("thread"))}
    launch_of = [_launch_at(by_thread.get(thread, []), time_ns) for thread, time_ns in launches]
    kernels = Counter(id(launch) for launch in launch_of if launch)
    return [_request_of(launch.calls, kernels[id(launch)]) if launch else CollectiveRequest() for launch in launch_of]


def _launches(calls: Iterable[NcclCall]) -> list[_Launch]:
    """The launches of one thread, in order of time."""
    launches: list[_Launch] = []
    depth, group, is_complete, last_ns = 0, [], True, -1
    for call in calls:
        if call.end_ns <= last_ns:
            continue  # a call by NCCL itself, inside the one before
        last_ns = call.end_ns
        if call.name == GROUP_START:
            depth += 1
        elif call.name == GROUP_END:
            is_complete = is_complete and depth > 0  # else the group began before the capture
            depth = max(depth - 1, 0)
            if depth == 0:
                launches.append(_Launch(call.start_ns, call.end_ns, tuple(group) if is_complete else ()))
                group, is_complete = [], True
        elif depth:
            group.append(call)
        else:
            launches.append(_Launch(call.start_ns, call.end_ns, (call,)))
    return launches


def _launch_at(launches: list[_Launch], time_ns: int) -> _Launch | None:
    index = bisect_right(launches, time_ns, key=attrgetter("start_ns")) - 1
    return launches[index] if index >= 0 and time_ns < launches[index].end_ns else None


def _request_of(calls: Sequence[NcclCall], kernels: int) -> CollectiveRequest:
    operations = {operation_named(call.name.removeprefix("nccl").lower()) for call in calls}
    communicators = {call.communicator for call in calls}
    sizes = [call.bytes for call in calls]
    knows_bytes = bool(sizes) and None not in sizes and kernels == 1 and sum(sizes) <= MOST_BYTES
    return CollectiveRequest(_only(operations), sum(sizes) if knows_bytes else None, _only(communicators))


def _only(values: set) -> str | int | None:
    return next(iter(values)) if len(values) == 1 else None
