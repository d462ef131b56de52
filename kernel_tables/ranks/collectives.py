"""The collectives of the measured steps, matched between all ranks.

All ranks of a communicator launch its collectives in the same order, so the k-th in a step of one rank belongs to the
k-th of the others; if NCCL's calls do not contain the communicator, one of all ranks is assumed. A kernel of NCCL also
waits until the other ranks have arrived: its shortest duration over the ranks is the transfer, and the remaining time
on the other ranks is waiting for the slowest rank.

A range names the bytes that are reduced or gathered on one rank: `all-reduce, bytes = 26214400, bucket = 0`.

What was requested of a kernel of NCCL is known from the calls that launched it. A call launches a kernel itself, unless
it is between ncclGroupStart and ncclGroupEnd: then the outermost ncclGroupEnd launches what all calls between them
request (NCCL's manual, "Group Calls").
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pandas as pd

from kernel_tables import columns, intervals
from kernel_tables.diagnosis.scope import NO_STEP
from kernel_tables.kineto.events import OPERATION_BY_PREFIX, operation_named
from kernel_tables.ranks.ranks import COMMUNICATION, DeviceSteps, RankTrace, device_steps, ranks_in_run
from kernel_tables.reading.nccl_calls import MAX_BYTES, NcclCall
from kernel_tables.reading.small_tables import TorchCollective

NCCL_KERNEL = re.compile(r"nccl(?:Dev)?Kernel_([A-Z][a-z]+(?:[A-Z][a-z]+)*)")  # ncclDevKernel_AllReduce_Sum_f32_RING_LL
GLOO_KERNEL = re.compile(r"gloo:(\w+)")
OPERATION_IN_RANGE = re.compile(r"^(all[-_]reduce|all[-_]gather|reduce[-_]scatter|all[-_]to[-_]all|broadcast|reduce)\b")
BYTES_IN_RANGE, BUCKET_IN_RANGE = re.compile(r"\bbytes = (\d+)"), re.compile(r"\bbucket = (\d+)")
ALL_REDUCE, ALL_GATHER = "all-reduce", "all-gather"
REDUCE_SCATTER, ALL_TO_ALL = "reduce-scatter", "all-to-all"
ONE_WAY = ("broadcast", "reduce")
COUNTED_BY_RANK = (ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, "gather", "scatter")  # NCCL counts the bytes of one rank
BUS_FACTORS = {ALL_REDUCE: 2.0, ALL_GATHER: 1.0, REDUCE_SCATTER: 1.0, ALL_TO_ALL: 1.0}  # for very many ranks
GROUP_START, GROUP_END = "ncclGroupStart", "ncclGroupEnd"
UNKNOWN_OPERATION = "unknown"
UNKNOWN_SIZE = 0  # of a communicator
COLUMNS = columns.column_names("communication --collectives")


class CollectiveInfo(NamedTuple):
    """What the ranges around the launch of a collective say about it; None if they do not say it."""

    operation: str | None = None
    bytes: int | None = None
    bucket: int | None = None


def parse_range_path(path: Sequence[str]) -> CollectiveInfo:
    """The operation and the bytes are those of the innermost range that names either; the bucket is that of the
    innermost range that names one. All are None if no range names an operation or bytes."""
    bucket = next((int(match[1]) for name in reversed(path) if (match := BUCKET_IN_RANGE.search(name))), None)
    for name in reversed(path):
        operation, size = OPERATION_IN_RANGE.search(name), BYTES_IN_RANGE.search(name)
        if size or operation:
            return CollectiveInfo(operation and _hyphenated(operation[1]), size and int(size[1]), bucket)
    return CollectiveInfo()


def operation_of(kernel: str) -> str | None:
    """The operation in the name of a kernel of NCCL or Gloo: all-reduce; None without one (ncclDevKernel_Generic)."""
    if match := GLOO_KERNEL.search(kernel):
        return _hyphenated(match[1])
    match = NCCL_KERNEL.search(kernel)
    if match is None or match[1] == "Generic":
        return None
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", match[1]).lower()


def bus_factor(operation: str, ranks: int) -> float | None:
    """Bandwidth of the busiest link ÷ bandwidth of the algorithm, as in NCCL's own tests; None if unknown or 0."""
    if operation in ONE_WAY:
        return 1.0
    factor = BUS_FACTORS.get(operation, 0.0) * (ranks - 1) / ranks
    return factor or None


def _hyphenated(operation: str) -> str:
    return operation.replace("_", "-")


class CollectiveRequest(NamedTuple):
    """What was requested of a kernel, `bytes` in sum. What its calls do not tell, or differ in, is None."""

    operation: str | None = None
    bytes: int | None = None
    communicator: int | None = None
    counted_by_nccl: bool = True  # then, for operations COUNTED_BY_RANK, `bytes` is the part of one rank


class _Launch(NamedTuple):
    """A call that launches kernels, and the calls that request them."""

    start_ns: int
    end_ns: int
    calls: tuple[NcclCall, ...]


def match_requests(calls: Iterable[NcclCall], kernels: Sequence[tuple[int, int]]) -> list[CollectiveRequest]:
    """The request of each of `kernels` of NCCL, given by the (thread, time) of its launch. `calls` are sorted by
    thread, then by time.

    A request is empty if the kernel was launched in none of `calls`, or in a group that began before the capture; bytes
    are unknown if one call or group launched several kernels.
    """
    by_thread = {thread: _launches(thread_calls) for thread, thread_calls in groupby(calls, attrgetter("thread"))}
    launches = [_launch_at(by_thread.get(thread, []), time_ns) for thread, time_ns in kernels]
    kernel_counts = Counter(launches)
    nothing = CollectiveRequest()
    return [_merged_request(launch.calls, kernel_counts[launch]) if launch else nothing for launch in launches]


def _launches(calls: Iterable[NcclCall]) -> list[_Launch]:
    """The launches of one thread, in order of time."""
    launches: list[_Launch] = []
    depth, group, is_complete = 0, [], True  # how many groups are open; the calls in them, and whether all are known
    last_ns = -1  # the end of the previous call
    for call in calls:
        if call.end_ns <= last_ns:
            continue  # NCCL itself made this call, inside the previous one
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
    """The one of a thread's `launches` that was running at this time, None if none was."""
    index = bisect_right(launches, time_ns, key=attrgetter("start_ns")) - 1
    return launches[index] if index >= 0 and time_ns < launches[index].end_ns else None


def _merged_request(calls: Sequence[NcclCall], kernel_count: int) -> CollectiveRequest:
    """The request in the calls of one launch, which launched `kernel_count` kernels."""
    operations = {operation_named(call.name.removeprefix("nccl").lower()) for call in calls}
    communicators = {call.communicator for call in calls}
    sizes = [call.bytes for call in calls]
    knows_bytes = bool(sizes) and None not in sizes and kernel_count == 1 and sum(sizes) <= MAX_BYTES
    return CollectiveRequest(
        operation=_only_value(operations),
        bytes=sum(sizes) if knows_bytes else None,
        communicator=_only_value(communicators),
    )


def _only_value(values: set) -> str | int | None:
    return next(iter(values)) if len(values) == 1 else None


def collectives(ranks: Sequence[RankTrace], step_name: str = "step") -> pd.DataFrame:
    """One row per rank, device, step and collective; kernel_tables/columns.py describes the columns.

    `bytes` is what the name of a range says, else the call of NCCL or PyTorch. transfer_ns and waiting_ns are missing
    with one rank, if the run had more ranks than are given, and in steps in which the ranks of a communicator did not
    run the same collectives.
    """
    return _matched_table(ranks, step_name)[COLUMNS]


def unmatched_steps(ranks: Sequence[RankTrace], step_name: str = "step") -> list[int]:
    """The steps in which not every rank of a communicator ran the same collectives, in the same order; none if the run
    had more ranks than are given."""
    table = _matched_table(ranks, step_name)
    return sorted(set(table.loc[(table["communicator_size"] > 1) & table["transfer_ns"].isna(), "step"]))


def _matched_table(ranks: Sequence[RankTrace], step_name: str) -> pd.DataFrame:
    """The columns of `collectives` and more, such as communicator (its number, -1 if unknown) and communicator_size
    (the number of its ranks, or UNKNOWN_SIZE)."""
    tables = [_device_table(steps) for steps in device_steps(ranks, step_name)]
    if not tables:  # nothing ran on a device
        return pd.DataFrame(columns=[*COLUMNS, "communicator_size"])
    with_rows = [table for table in tables if len(table)]  # others might change the types of columns
    table = pd.concat(with_rows or tables[:1], ignore_index=True)
    is_known = table["communicator"].notna()
    table["communicator"] = pd.factorize(table["communicator"])[0]  # -1 where it is missing
    sizes = table[["communicator", "rank", "device"]].drop_duplicates().groupby("communicator").size()
    given_ranks = max(len(ranks), len(table[["rank", "device"]].drop_duplicates()))
    size = table["communicator"].map(sizes).where(is_known, given_ranks).astype("int64")  # else all given ranks
    if ranks_in_run(ranks) > given_ranks:  # a communicator may have more ranks than are given
        size[:] = UNKNOWN_SIZE
    table["communicator_size"] = size
    has_bytes_of_one_rank = table["counted_by_nccl"] & table["operation"].isin(COUNTED_BY_RANK)
    all_bytes = (table["requested_bytes"] * size).where(size > 1)  # a single rank has no communicator
    table["bytes"] = table["bytes"].fillna(table["requested_bytes"].where(~has_bytes_of_one_rank, all_bytes))
    return _with_bandwidth(_with_transfer(table))


def _are_matched(table: pd.DataFrame) -> np.ndarray:
    """By row: whether in its step all ranks of its communicator ran the same operations in the same order."""
    sequences = table.groupby(["step", "communicator", "rank", "device"])["operation"].agg(tuple)
    counts = sequences.groupby(level=["step", "communicator"]).agg(["size", "nunique"])
    by_row = counts.loc[pd.MultiIndex.from_frame(table[["step", "communicator"]])]
    return (by_row["size"].to_numpy() == table["communicator_size"].to_numpy()) & (by_row["nunique"].to_numpy() == 1)


def _device_table(steps: DeviceSteps) -> pd.DataFrame:
    """The collectives of one rank on one device, in the order in which each step launched them."""
    trace, activities = steps.rank.trace, steps.scope.activities
    rows = np.flatnonzero(steps.is_communication & (steps.step != NO_STEP))
    launch_ns = np.where(activities.has_launch, activities.launch_ns, activities.start_ns)
    rows = rows[np.lexsort((activities.start_ns[rows], launch_ns[rows], steps.step[rows]))]
    step, start_ns, duration_ns = steps.step[rows], activities.start_ns[rows], activities.duration_ns[rows]
    overlapped_ns = intervals.covered_ns(steps.during(steps.is_compute), start_ns, start_ns + duration_ns)
    kernels = [activities.names[name] for name in activities.name[rows].tolist()]
    paths = [trace.range_paths.tuples[path] for path in trace.activity_path[rows].tolist()]
    infos, requests = [parse_range_path(path) for path in paths], _kernel_requests(steps, rows)
    operations = [
        request.operation or operation_of(kernel) or info.operation or UNKNOWN_OPERATION
        for request, kernel, info in zip(requests, kernels, infos, strict=True)
    ]
    return pd.DataFrame(
        {
            "rank": steps.rank.number,
            "device": steps.device,
            "step": step,
            "number": np.arange(len(rows)) - np.searchsorted(step, step),  # in its step
            "operation": operations,
            "range": [path[-1] if path else "" for path in paths],
            "kernel": kernels,
            "bytes": pd.array([info.bytes for info in infos], "Int64"),
            "requested_bytes": pd.array([request.bytes for request in requests], "Int64"),
            "counted_by_nccl": [request.counted_by_nccl for request in requests],
            "communicator": pd.Series([request.communicator for request in requests], dtype=object),
            "bucket": pd.array([info.bucket for info in infos], "Int64"),
            "start_ns": start_ns - steps.windows.begin_ns[step],
            "duration_ns": duration_ns,
            "exposed_ns": duration_ns - overlapped_ns,
        }
    )


def _kernel_requests(steps: DeviceSteps, rows: np.ndarray) -> list[CollectiveRequest]:
    """The requests of the collectives in these rows of activities, by PyTorch's profiler or by NCCL's own calls."""
    trace, activities = steps.rank.trace, steps.scope.activities
    if torch_collectives := trace.capture.torch_collectives:
        keys = zip(activities.process[rows].tolist(), activities.correlation[rows].tolist(), strict=True)
        collectives_of_rows = [torch_collectives.get(key, TorchCollective()) for key in keys]
        known = OPERATION_BY_PREFIX.values()
        return [
            CollectiveRequest(operation if operation in known else None, size, communicator, counted_by_nccl=False)
            for operation, size, communicator in collectives_of_rows
        ]
    # Requests are matched with the kernels of all devices, since a group may launch on several.
    launched = np.flatnonzero(steps.scope.is_of_class(COMMUNICATION) & activities.has_launch)
    launches = list(zip(activities.thread[launched].tolist(), activities.launch_ns_of(launched).tolist(), strict=True))
    by_row = dict(zip(launched.tolist(), match_requests(trace.capture.nccl_calls, launches), strict=True))
    return [by_row.get(row, CollectiveRequest()) for row in rows.tolist()]


def _with_transfer(table: pd.DataFrame) -> pd.DataFrame:
    """The table with transfer_ns and waiting_ns, if these are known."""
    number = table.groupby(["step", "communicator", "rank", "device"]).cumcount()
    shortest = table.groupby([table["step"], table["communicator"], number])["duration_ns"].transform("min")
    transfer = shortest.astype("Int64").where(_are_matched(table) & (table["communicator_size"] > 1))
    return table.assign(transfer_ns=transfer, waiting_ns=table["duration_ns"] - transfer)


def _with_bandwidth(table: pd.DataFrame) -> pd.DataFrame:
    """The table with bandwidths; a byte per nanosecond is 10^9 bytes a second."""
    algorithm = (table["bytes"] / table["transfer_ns"].replace(0, pd.NA)).astype("Float64")
    pairs = zip(table["operation"], table["communicator_size"].tolist(), strict=True)
    factors = [bus_factor(operation, size) if size != UNKNOWN_SIZE else None for operation, size in pairs]
    return table.assign(algorithm_gb_per_s=algorithm, bus_gb_per_s=algorithm * pd.array(factors, "Float64"))
