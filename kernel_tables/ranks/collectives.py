"""The collectives of the measured steps, those of all ranks that belong together beside each other.

Every rank launches the collectives of a communicator in one order, so the k-th of a step on one rank is the k-th on the
others. A kernel of NCCL also waits until the others have come: the shortest over the ranks is the transfer, what an own
one takes beyond that is waiting for the slowest rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kernel_tables.diagnosis.scope import NO_STEP
from kernel_tables.intervals import covered_ns
from kernel_tables.ranks.naming import bus_factor, operation_of, told_by
from kernel_tables.ranks.ranks import Rank
from kernel_tables.ranks.steps import DeviceSteps, device_steps

UNKNOWN = "unknown"  # operation
COLUMNS = [
    "rank", "device", "step", "number", "operation", "range", "kernel", "bytes", "bucket", "start_ns", "duration_ns",
    "exposed_ns", "transfer_ns", "waiting_ns", "algorithm_gb_per_s", "bus_gb_per_s",
]  # fmt: skip


def collectives(ranks: Sequence[Rank], step_name: str = "step") -> pd.DataFrame:
    """One row per rank, device, step and collective.

    Columns: rank, device, step (number of the measured step); number (in the step, by launch, from 0); operation
    (all-reduce, ...); range (around its launch, innermost); kernel; bytes, bucket (where a range names them);
    start_ns (from the begin of the step on this device); duration_ns; exposed_ns (of that, while no kernel computed);
    transfer_ns (the shortest duration over the ranks), waiting_ns (duration less that): missing with one rank, and in
    steps in which the ranks did not run the same collectives; algorithm_gb_per_s = bytes / transfer, 10^9 bytes a
    second; bus_gb_per_s = that times 2(n - 1)/n for an all-reduce of n ranks.
    """
    tables = [_of_device(steps) for steps in device_steps(ranks, step_name)]
    filled = [table for table in tables if len(table)] or tables[:1]
    if not filled:  # no device has a step in which anything ran
        return pd.DataFrame(columns=COLUMNS)
    table = pd.concat(filled, ignore_index=True)
    return _with_bandwidth(_with_transfer(table, _places(table, ranks)), _places(table, ranks))[COLUMNS]


def unmatched_steps(table: pd.DataFrame, ranks: Sequence[Rank]) -> list[int]:
    """The steps of a table of collectives in which not every rank ran the same ones, in the same order."""
    places, matched = _places(table, ranks), _matched(table, _places(table, ranks))
    return sorted(set(table["step"]) - set(matched)) if places > 1 else []


def _places(table: pd.DataFrame, ranks: Sequence[Rank]) -> int:
    """How many take part: the ranks, or their devices where one has several that communicate."""
    return max(len(ranks), len(table[["rank", "device"]].drop_duplicates()))


def _matched(table: pd.DataFrame, places: int) -> list[int]:
    """The steps in which all PLACES ran the same operations in the same order."""
    ran = table.groupby(["step", "rank", "device"], sort=True)["operation"].agg(tuple)
    return [step for step, own in ran.groupby(level="step") if len(own) == places and own.nunique() == 1]


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
    operations = [operation_of(kernel) or own.operation or UNKNOWN for kernel, own in zip(kernels, told, strict=True)]
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
            "bucket": pd.array([one.bucket for one in told], "Int64"),
            "start_ns": start_ns - steps.windows[0][step],
            "duration_ns": duration_ns,
            "exposed_ns": duration_ns - computed,
        }
    )


def _with_transfer(table: pd.DataFrame, places: int) -> pd.DataFrame:
    matched = table["step"].isin(_matched(table, places)) & (places > 1)
    shortest = table.groupby(["step", "number"])["duration_ns"].transform("min")
    transfer = shortest.astype("Int64").where(matched)
    return table.assign(transfer_ns=transfer, waiting_ns=table["duration_ns"] - transfer)


def _with_bandwidth(table: pd.DataFrame, places: int) -> pd.DataFrame:
    """Bytes per nanosecond are 10^9 bytes a second."""
    algorithm = (table["bytes"] / table["transfer_ns"].replace(0, pd.NA)).astype("Float64")
    factors = [bus_factor(operation, places) for operation in table["operation"]]
    return table.assign(algorithm_gb_per_s=algorithm, bus_gb_per_s=algorithm * pd.array(factors, "Float64"))
