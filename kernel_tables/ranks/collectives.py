"""The collectives of the measured steps, matched between all ranks.

Every rank launches the collectives of a communicator in the same order, so the k-th in a step of one rank is the k-th
on the other ranks that belong to it; if NCCL's calls do not contain the communicator, one of all ranks is assumed. A
kernel of NCCL also waits until the other ranks have arrived: the shortest duration over the ranks is the transfer; what
a rank takes beyond that is waiting for the slowest rank.

A range names the bytes that are reduced or gathered on one rank: `all-reduce, bytes = 26214400, bucket = 0`.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from kernel_tables.columns import names_of
from kernel_tables.diagnosis.scope import NO_STEP
from kernel_tables.intervals import covered_ns
from kernel_tables.kineto.nccl_kernels import OPERATIONS
from kernel_tables.ranks.nccl_requests import CollectiveRequest, match_requests
from kernel_tables.ranks.ranks import RankTrace, ranks_in_run
from kernel_tables.ranks.steps import COMMUNICATION, DeviceSteps, device_steps

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
COLUMNS = names_of("communication --collectives")


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
    launch_ns = np.where(activities.launched, activities.launch_ns, activities.start_ns)
    rows = rows[np.lexsort((activities.start_ns[rows], launch_ns[rows], steps.step[rows]))]
    step, start_ns, duration_ns = steps.step[rows], activities.start_ns[rows], activities.duration_ns[rows]
    computed = covered_ns(steps.during(steps.is_compute), start_ns, start_ns + duration_ns)
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
    launched = np.flatnonzero(steps.scope.of_class(COMMUNICATION) & activities.launched)
    launches = list(zip(activities.thread[launched].tolist(), activities.launch_ns[launched].tolist(), strict=True))
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
