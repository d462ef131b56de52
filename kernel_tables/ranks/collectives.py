"""The collectives of the measured steps, matched between all ranks.

Every rank launches the collectives of a communicator in the same order, so the k-th in a step of one rank is the k-th
on the other ranks that belong to it; if NCCL's calls do not contain the communicator, one of all ranks is assumed. A
kernel of NCCL also waits until the other ranks have arrived: the shortest duration over the ranks is the transfer; what
a rank takes beyond that is waiting for the slowest rank.

A range names the bytes that are reduced or gathered on one rank: `all-reduce, bytes = 26214400, bucket = 0`.

What a kernel of NCCL was requested to do is known by the calls that launched it. A call launches its own kernel, unless
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
from kernel_tables.kineto.events import OPERATIONS, operation_named
from kernel_tables.ranks.ranks import COMMUNICATION, DeviceSteps, RankTrace, device_steps, ranks_in_run
from kernel_tables.reading.nccl_calls import MAX_BYTES, NcclCall

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
    knows_bytes = bool(sizes) and None not in sizes and kernels == 1 and sum(sizes) <= MAX_BYTES
    return CollectiveRequest(_only(operations), sum(sizes) if knows_bytes else None, _only(communicators))


def _only(values: set) -> str | int | None:
    return next(iter(values)) if len(values) == 1 else None


OF_NCCL = re.compile(r"nccl(?:Dev)?Kernel_([A-Z][a-z]+(?:[A-Z][a-z]+)*)")  # ncclDevKernel_AllReduce_Sum_f32_RING_LL
OF_GLOO = re.compile(r"gloo:(\w+)")
OF_RANGE = re.compile(r"^(all[-_]reduce|all[-_]gather|reduce[-_]scatter|all[-_]to[-_]all|broadcast|reduce)\b")
BYTES, BUCKET = re.compile(r"\bbytes = (\d+)"), re.compile(r"\bbucket = (\d+)")
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all-reduce", "all-gather", "reduce-scatter"
ALL_TO_ALL = "all-to-all"
ONE_WAY = ("broadcast", "reduce")
COUNTED_BY_RANK = (ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, "gather", "scatter")  # by NCCL
FACTORS = {ALL_REDUCE: 2.0, ALL_GATHER: 1.0, REDUCE_SCATTER: 1.0, ALL_TO_ALL: 1.0}


class CollectiveInfo(NamedTuple):
    """A collective as the ranges around its launch name it; None for what they do not name."""

    operation: str | None = None
    bytes: int | None = None
    bucket: int | None = None


def parse_range_path(path: Sequence[str]) -> CollectiveInfo:
    """The collective that the innermost range that names an operation or bytes describes, with the bucket of the
    innermost range that names one; NCCL's own ranges may be inside."""
    bucket = next((int(match[1]) for name in reversed(path) if (match := BUCKET.search(name))), None)
    for name in reversed(path):
        operation, size = OF_RANGE.search(name), BYTES.search(name)
        if size or operation:
            return CollectiveInfo(operation and _spelled(operation[1]), size and int(size[1]), bucket)
    return CollectiveInfo()


def operation_of(kernel: str) -> str | None:
    """The operation in a kernel's name: all-reduce; None if it has none (ncclDevKernel_Generic)."""
    if match := OF_GLOO.search(kernel):
        return _spelled(match[1])
    match = OF_NCCL.search(kernel)
    if match is None or match[1] == "Generic":
        return None
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", match[1]).lower()


def bus_factor(operation: str, ranks: int) -> float | None:
    """Bandwidth of the busiest link ÷ bandwidth of the algorithm, as in NCCL's own tests; None if unknown."""
    if operation in ONE_WAY:
        return 1.0
    return FACTORS.get(operation, 0.0) * (ranks - 1) / ranks or None


def _spelled(operation: str) -> str:
    return operation.replace("_", "-")


UNKNOWN = "unknown"  # operation
UNKNOWN_RANKS = 0
COLUMNS = columns.column_names("communication --collectives")


def collectives(ranks: Sequence[RankTrace], step_name: str = "step") -> pd.DataFrame:
    """One row per rank, device, step and collective.

    Columns: rank, device, step (number of the measured step); number (in the step, by launch, from 0); operation
    (all-reduce, ...); range (innermost around its launch); kernel; bytes (all that is reduced, gathered or scattered on
    one rank, by the name of a range, else by NCCL's call); bucket (by the name of a range); start_ns (since the step
    began on this device); duration_ns; exposed_ns (of that, while no kernel computed); transfer_ns (the shortest
    duration over the ranks), waiting_ns (duration - transfer); algorithm_gb_per_s = bytes / transfer, 10^9 bytes per
    second; bus_gb_per_s = that × 2(n - 1)/n for an all-reduce of n ranks.

    transfer_ns and waiting_ns are missing with one rank, if the run had more ranks than are given, and in steps in
    which the ranks of a communicator did not run the same collectives.
    """
    return _with_communicators(ranks, step_name)[COLUMNS]


def unmatched_steps(ranks: Sequence[RankTrace], step_name: str = "step") -> list[int]:
    """The steps in which not every rank of a communicator ran the same collectives, in the same order."""
    table = _with_communicators(ranks, step_name)
    return sorted(set(table.loc[(table["ranks"] > 1) & table["transfer_ns"].isna(), "step"]))


def _with_communicators(ranks: Sequence[RankTrace], step_name: str) -> pd.DataFrame:
    """The table with two more columns: communicator (numbered), ranks (how many belong to it, or UNKNOWN_RANKS)."""
    tables = [_device_table(steps) for steps in device_steps(ranks, step_name)]
    filled = [table for table in tables if len(table)] or tables[:1]
    if not filled:  # no device has a step in which anything ran
        return pd.DataFrame(columns=[*COLUMNS, "communicator", "ranks"])
    table = pd.concat(filled, ignore_index=True)
    known = table["communicator"].notna()
    table["communicator"] = pd.factorize(table["communicator"])[0]  # -1 if unknown
    members = table[["communicator", "rank", "device"]].drop_duplicates().groupby("communicator").size()
    all_ranks = max(len(ranks), len(table[["rank", "device"]].drop_duplicates()))
    table["ranks"] = table["communicator"].map(members).where(known, all_ranks).astype("int64")
    if ranks_in_run(ranks) > all_ranks:  # a communicator may have more ranks than are given
        table["ranks"] = UNKNOWN_RANKS
    is_of_one_rank = table["by_rank"] & table["operation"].isin(COUNTED_BY_RANK)
    all_bytes = (table["nccl_bytes"] * table["ranks"]).where(table["ranks"] > 1)  # a single rank has no communicator
    table["bytes"] = table["bytes"].fillna(table["nccl_bytes"].where(~is_of_one_rank, all_bytes))
    return _with_bandwidth(_with_transfer(table))


def _is_matched(table: pd.DataFrame) -> np.ndarray:
    """By row: whether in its step all ranks of its communicator ran the same operations in the same order."""
    ran = table.groupby(["step", "communicator", "rank", "device"])["operation"].agg(tuple)
    same = ran.groupby(level=["step", "communicator"]).agg(["size", "nunique"])
    by_row = same.loc[pd.MultiIndex.from_frame(table[["step", "communicator"]])]
    return (by_row["size"].to_numpy() == table["ranks"].to_numpy()) & (by_row["nunique"].to_numpy() == 1)


def _device_table(steps: DeviceSteps) -> pd.DataFrame:
    """The collectives of one rank on one device, in the order in which each step launched them."""
    trace, activities = steps.rank.trace, steps.scope.activities
    rows = np.flatnonzero(steps.is_communication & (steps.step != NO_STEP))
    launch_ns = np.where(activities.has_launch, activities.launch_ns, activities.start_ns)
    rows = rows[np.lexsort((activities.start_ns[rows], launch_ns[rows], steps.step[rows]))]
    step, start_ns, duration_ns = steps.step[rows], activities.start_ns[rows], activities.duration_ns[rows]
    computed = intervals.covered_ns(steps.during(steps.is_compute), start_ns, start_ns + duration_ns)
    kernels = [activities.names[name] for name in activities.name[rows].tolist()]
    paths = [trace.range_paths.tuples[path] for path in trace.activity_path[rows].tolist()]
    by_range, requests = [parse_range_path(path) for path in paths], _requests_of(steps, rows)
    operations = [
        request.operation or operation_of(kernel) or info.operation or UNKNOWN
        for request, kernel, info in zip(requests, kernels, by_range, strict=True)
    ]
    return pd.DataFrame(
        {
            "rank": steps.rank.number,
            "device": steps.device,
            "step": step,
            "number": np.arange(len(rows)) - np.searchsorted(step, step),
            "operation": operations,
            "range": [path[-1] if path else "" for path in paths],
            "kernel": kernels,
            "bytes": pd.array([info.bytes for info in by_range], "Int64"),
            "nccl_bytes": pd.array([request.bytes for request in requests], "Int64"),
            "by_rank": [request.by_rank for request in requests],
            "communicator": pd.Series([request.communicator for request in requests], dtype=object),
            "bucket": pd.array([info.bucket for info in by_range], "Int64"),
            "start_ns": start_ns - steps.windows.begin_ns[step],
            "duration_ns": duration_ns,
            "exposed_ns": duration_ns - computed,
        }
    )


def _requests_of(steps: DeviceSteps, rows: np.ndarray) -> list[CollectiveRequest]:
    """The requests of the collectives in these rows, by PyTorch's profiler or by NCCL's own calls."""
    trace, activities = steps.rank.trace, steps.scope.activities
    if by_torch := trace.capture.torch_collectives:
        keys = zip(activities.process[rows].tolist(), activities.correlation[rows].tolist(), strict=True)
        facts = [by_torch.get(key, (None, None, None)) for key in keys]
        known = OPERATIONS.values()
        return [CollectiveRequest(name if name in known else None, *rest, by_rank=False) for name, *rest in facts]
    # not only of this device: a group may launch on two
    launched = np.flatnonzero(steps.scope.is_of_class(COMMUNICATION) & activities.has_launch)
    launches = list(zip(activities.thread[launched].tolist(), activities.launch_ns_of(launched).tolist(), strict=True))
    by_row = dict(zip(launched.tolist(), match_requests(trace.capture.nccl_calls, launches), strict=True))
    return [by_row.get(row, CollectiveRequest()) for row in rows.tolist()]


def _with_transfer(table: pd.DataFrame) -> pd.DataFrame:
    number = table.groupby(["step", "communicator", "rank", "device"]).cumcount()
    shortest = table.groupby([table["step"], table["communicator"], number])["duration_ns"].transform("min")
    transfer = shortest.astype("Int64").where(_is_matched(table) & (table["ranks"] > 1))
    return table.assign(transfer_ns=transfer, waiting_ns=table["duration_ns"] - transfer)


def _with_bandwidth(table: pd.DataFrame) -> pd.DataFrame:
    """The table with bandwidths; a byte per nanosecond is 10^9 bytes a second."""
    algorithm = (table["bytes"] / table["transfer_ns"].replace(0, pd.NA)).astype("Float64")
    pairs = zip(table["operation"], table["ranks"].tolist(), strict=True)
    factors = [bus_factor(operation, number) if number else None for operation, number in pairs]
    return table.assign(algorithm_gb_per_s=algorithm, bus_gb_per_s=algorithm * pd.array(factors, "Float64"))
