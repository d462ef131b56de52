"""The collectives of the measured steps, those of all ranks that belong together beside each other.

Every rank launches the collectives of a communicator in one order, so the k-th of a step on one rank is the k-th on the
others that belong to it; where NCCL's calls do not tell the communicator, one of all ranks is supposed. A kernel of
NCCL also waits until the others have come: the shortest over the ranks is the transfer, what an own one takes beyond
that is waiting for the slowest rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kernel_tables.diagnosis.scope import NO_STEP
from kernel_tables.intervals import covered_ns
from kernel_tables.ranks.asked import OPERATIONS, Asked, asked
from kernel_tables.ranks.naming import IN_PARTS, bus_factor, operation_of, told_by
from kernel_tables.ranks.ranks import Rank, ranks_in_run
from kernel_tables.ranks.steps import COMMUNICATION, DeviceSteps, device_steps

UNKNOWN = "unknown"  # operation
UNKNOWN_RANKS = 0
COLUMNS = [
    "rank", "device", "step", "number", "operation", "range", "kernel", "bytes", "bucket", "start_ns", "duration_ns",
    "exposed_ns", "transfer_ns", "waiting_ns", "algorithm_gb_per_s", "bus_gb_per_s",
]  # fmt: skip


def collectives(ranks: Sequence[Rank], step_name: str = "step") -> pd.DataFrame:
    """One row per rank, device, step and collective.

    Columns: rank, device, step (number of the measured step); number (in the step, by launch, from 0); operation
    (all-reduce, ...); range (around its launch, innermost); kernel; bytes (of all that is reduced, gathered or given
    away, on one rank: as a range names them, else as NCCL's own call tells); bucket (where a range names it); start_ns
    (from the begin of the step on this device); duration_ns; exposed_ns (of that, while no kernel computed);
    transfer_ns (the shortest duration over the ranks), waiting_ns (duration less that): missing with one rank, where
    the recordings say that the run had more ranks than are given, and in steps in which the ranks of a communicator did
    not run the same collectives; algorithm_gb_per_s = bytes / transfer, 10^9 bytes a second; bus_gb_per_s = that times
    2(n - 1)/n for an all-reduce of n ranks.
    """
    return _with_communicators(ranks, step_name)[COLUMNS]


def unmatched_steps(ranks: Sequence[Rank], step_name: str = "step") -> list[int]:
    """The steps in which not every rank of a communicator ran the same collectives, in the same order."""
    table = _with_communicators(ranks, step_name)
    return sorted(set(table.loc[(table["ranks"] > 1) & table["transfer_ns"].isna(), "step"]))


def _with_communicators(ranks: Sequence[Rank], step_name: str) -> pd.DataFrame:
    """The table, and two columns more: communicator (a number for each), ranks (how many belong to it, or 0)."""
    tables = [_of_device(steps) for steps in device_steps(ranks, step_name)]
    filled = [table for table in tables if len(table)] or tables[:1]
    if not filled:  # no device has a step in which anything ran
        return pd.DataFrame(columns=[*COLUMNS, "communicator", "ranks"])
    table = pd.concat(filled, ignore_index=True)
    known = table["communicator"].notna()
    table["communicator"] = pd.factorize(table["communicator"])[0]  # -1 where it is not known
    members = table[["communicator", "rank", "device"]].drop_duplicates().groupby("communicator").size()
    all_ranks = max(len(ranks), len(table[["rank", "device"]].drop_duplicates()))
    table["ranks"] = table["communicator"].map(members).where(known, all_ranks).astype("int64")
    if ranks_in_run(ranks) > all_ranks:  # so those that are given may be less than a communicator has
        table["ranks"] = UNKNOWN_RANKS
    in_parts = table["by_rank"] & table["operation"].isin(IN_PARTS)
    of_all = (table["nccl_bytes"] * table["ranks"]).where(table["ranks"] > 1)  # one alone has no communicator
    table["bytes"] = table["bytes"].fillna(table["nccl_bytes"].where(~in_parts, of_all))
    return _with_bandwidth(_with_transfer(table))


def _is_matched(table: pd.DataFrame) -> np.ndarray:
    """By row: whether in its step all ranks of its communicator ran the same operations in the same order."""
    ran = table.groupby(["step", "communicator", "rank", "device"])["operation"].agg(tuple)
    same = ran.groupby(level=["step", "communicator"]).agg(["size", "nunique"])
    of_row = same.loc[pd.MultiIndex.from_frame(table[["step", "communicator"]])]
    return (of_row["size"].to_numpy() == table["ranks"].to_numpy()) & (of_row["nunique"].to_numpy() == 1)


def _of_device(steps: DeviceSteps) -> pd.DataFrame:
    """The collectives of one rank on one device, in the order in which each step launched them."""
    trace, found = steps.rank.trace, steps.scope.activities
    rows = np.flatnonzero(steps.is_communication & (steps.step != NO_STEP))
    launched = np.where(found.launched, found.launch_ns, found.start_ns)
    rows = rows[np.lexsort((found.start_ns[rows], launched[rows], steps.step[rows]))]
    step, start_ns, duration_ns = steps.step[rows], found.start_ns[rows], found.duration_ns[rows]
    computed = covered_ns(steps.during(steps.is_compute), start_ns, start_ns + duration_ns)
    kernels = [found.names[name] for name in found.name[rows].tolist()]
    paths = [trace.range_paths.tuples[path] for path in trace.activity_path[rows].tolist()]
    told = [told_by(path) for path in paths]
    by_nccl = _asked_of_nccl(steps, rows)
    operations = [
        by_call.operation or operation_of(kernel) or own.operation or UNKNOWN
        for by_call, kernel, own in zip(by_nccl, kernels, told, strict=True)
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
            "bytes": pd.array([one.bytes for one in told], "Int64"),
            "nccl_bytes": pd.array([one.bytes for one in by_nccl], "Int64"),
            "by_rank": [one.by_rank for one in by_nccl],
            "communicator": pd.Series([one.communicator for one in by_nccl], dtype=object),
            "bucket": pd.array([one.bucket for one in told], "Int64"),
            "start_ns": start_ns - steps.windows[0][step],
            "duration_ns": duration_ns,
            "exposed_ns": duration_ns - computed,
        }
    )


def _asked_of_nccl(steps: DeviceSteps, rows: np.ndarray) -> list[Asked]:
    """What NCCL's own calls tell of the collectives in these rows, or PyTorch's profiler of its own."""
    trace, found = steps.rank.trace, steps.scope.activities
    if by_torch := trace.capture.torch_collectives:
        keys = zip(found.process[rows].tolist(), found.correlation[rows].tolist(), strict=True)
        told = [by_torch.get(key, (None, None, None)) for key in keys]
        return [Asked(name if name in OPERATIONS.values() else None, *rest, by_rank=False) for name, *rest in told]
    launched = np.flatnonzero(steps.scope.of_class(COMMUNICATION) & found.launched)  # a group may launch on two devices
    launches = list(zip(found.thread[launched].tolist(), found.launch_ns[launched].tolist(), strict=True))
    by_row = dict(zip(launched.tolist(), asked(trace.capture.nccl_calls, launches), strict=True))
    return [by_row.get(row, Asked()) for row in rows.tolist()]


def _with_transfer(table: pd.DataFrame) -> pd.DataFrame:
    place = table.groupby(["step", "communicator", "rank", "device"]).cumcount()
    shortest = table.groupby([table["step"], table["communicator"], place])["duration_ns"].transform("min")
    transfer = shortest.astype("Int64").where(_is_matched(table) & (table["ranks"] > 1))
    return table.assign(transfer_ns=transfer, waiting_ns=table["duration_ns"] - transfer)


def _with_bandwidth(table: pd.DataFrame) -> pd.DataFrame:
    """Bytes per nanosecond are 10^9 bytes a second."""
    algorithm = (table["bytes"] / table["transfer_ns"].replace(0, pd.NA)).astype("Float64")
    pairs = zip(table["operation"], table["ranks"].tolist(), strict=True)
    factors = [bus_factor(operation, number) if number else None for operation, number in pairs]
    return table.assign(algorithm_gb_per_s=algorithm, bus_gb_per_s=algorithm * pd.array(factors, "Float64"))
