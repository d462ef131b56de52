"""The work of launches, from their counters: FLOPs by kind and bytes, and how close their rates are to the roofs."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kernel_tables.counters.metrics import DRAM_BYTES, FLOP_KINDS, INSTRUCTIONS, L2_BYTES, TENSOR_OPERATIONS

FLOPS = {kind: f"{kind}_flops" for kind in FLOP_KINDS}
WORK_COLUMNS = [*FLOPS.values(), "dram_bytes", "l2_bytes"]  # columns that add up over launches


@dataclass(frozen=True)
class Roofs:
    """The highest possible rates of a GPU; None if unknown."""

    memory_bytes_per_s: float | None
    flop_per_s: Mapping[str, float | None]  # by kind of FLOPs

    def rate_of(self, kind: str) -> float:
        """The rate of a kind of FLOPs, NaN if unknown."""
        return self.flop_per_s.get(kind) or float("nan")


def work_of(metrics: pd.DataFrame) -> pd.DataFrame:
    """WORK_COLUMNS for the launch of each row."""
    dram_bytes = metrics[list(DRAM_BYTES)].sum(axis=1, min_count=len(DRAM_BYTES))
    return _flops_of(metrics).assign(dram_bytes=dram_bytes, l2_bytes=metrics[L2_BYTES])


def total_flops(metrics: pd.DataFrame) -> pd.Series:
    """The FLOPs of all kinds for the launch of each row."""
    return _flops_of(metrics).sum(axis=1, min_count=len(FLOPS))


def rates_of(work: pd.DataFrame, seconds: pd.Series, roofs: Roofs) -> pd.DataFrame:
    """The rates of every row of `work` (with WORK_COLUMNS), NaN if unknown.

    Columns: flops, flop_per_s, dram_bytes_per_s, flops_per_byte; compute_share: the time of its FLOPs at the roofs of
    their kinds ÷ its time; memory_share: the same for its bytes.
    """
    flops = work[list(FLOPS.values())].sum(axis=1, min_count=len(FLOPS))
    seconds = seconds.astype("float64").where(seconds > 0)
    at_roofs = sum(_seconds_at(work[column], roofs.rate_of(kind)) for kind, column in FLOPS.items())
    return pd.DataFrame(
        {
            "flops": flops,
            "flop_per_s": flops / seconds,
            "dram_bytes_per_s": work["dram_bytes"] / seconds,
            "flops_per_byte": flops / work["dram_bytes"].where(work["dram_bytes"] > 0),
            "compute_share": at_roofs / seconds,
            "memory_share": work["dram_bytes"] / (roofs.memory_bytes_per_s or np.nan) / seconds,
        }
    )


def _flops_of(metrics: pd.DataFrame) -> pd.DataFrame:
    """FLOPs by kind. Operations of tensor cores that are NaN in all rows become 0: this GPU has no counter for them."""
    adds, multiplies, fmas = (metrics[INSTRUCTIONS[name]] for name in ("fadd", "fmul", "ffma"))
    table = {FLOPS["fp32"]: adds + multiplies + 2 * fmas}
    is_counted = table[FLOPS["fp32"]].notna()
    for kind, metric in TENSOR_OPERATIONS.items():
        operations = metrics[metric]
        table[FLOPS[kind]] = operations.mask(is_counted, 0.0) if operations.isna().all() else operations
    return pd.DataFrame(table)


def _seconds_at(flops: pd.Series, rate: float) -> pd.Series:
    """The time of FLOPs at a rate; 0 for none, even if the rate is unknown."""
    return (flops / rate).where(flops != 0, 0.0)
