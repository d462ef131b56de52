"""The table of the attention sweep: a line per cell, and beside each the written-out attention that differs in nothing
else."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from cs336_model.program.variants.values import EAGER, NOT_COMPILED
from profile_grid.measuring.results import COMPLETE
from profile_grid.measuring.sweep import Cell, RowResult
from profile_grid.study.sweep_dimensions import CELL_KEYS, OF_A_CELL
from profile_grid.study.table_spec import TableSpec, column_of, columns
from profile_grid.sweep.rows import ROW_COLUMN
from profile_grid.tables.ideal import causal_attention_flops, least_ms_of_attention, peaks_of_device
from profile_grid.tables.ratios import with_speed_up

PASSES = ("forward", "backward")
PLACE = [key for key in CELL_KEYS if key not in ("compile", "attention")]
LEADING = ["run", *CELL_KEYS, "variant"]
COMPILED = "compiled"  # the variant that is eager's code, compiled; the others are named as attention is


def sweep_table(rows: Mapping[str, RowResult]) -> pd.DataFrame:
    """One line per cell of these rows, by the row's name."""
    found = [_cell(name, row, cell) for name, row in rows.items() for cell in row.program.cells]
    return _with_ideal(_beside_written_out(pd.DataFrame(found)), rows)


def _cell(name: str, row: RowResult, cell: Cell) -> dict:
    dimensions = row.program.spec["dimensions"] | {"context_length": cell.context_length}
    compiled = dimensions["compile"] != NOT_COMPILED
    times = {}
    for which in PASSES:
        ms = 1e3 * np.asarray(getattr(cell, f"{which}_seconds"), dtype="float64")
        times |= {f"{which}_ms": ms.mean() if len(ms) else np.nan}
        times |= {f"{which}_std_ms": ms.std(ddof=1) if len(ms) > 1 else np.nan}
    return {
        "run": name, **{key: dimensions[key] for key in CELL_KEYS},
        "variant": COMPILED if compiled else dimensions["attention"],
        "status": cell.status, "reason": cell.reason, "passes": len(cell.forward_seconds), **times,
        "memory_before_backward_bytes": _number(cell.memory_before_backward_bytes),
        "peak_bytes": _number(cell.peak_bytes),
        "compile_s": _number(cell.compile_seconds),
    }  # fmt: skip


def _beside_written_out(table: pd.DataFrame) -> pd.DataFrame:
    """The table with forward_speed_up and backward_speed_up, and their spreads; empty where the written-out attention
    or the cell has no time, and for that attention itself."""
    written_out = (table["variant"] == EAGER) & (table["status"] == COMPLETE)
    for which in PASSES:
        figure, spread = f"{which}_ms", f"{which}_std_ms"
        base = table.loc[written_out, [*PLACE, figure, spread]]
        base = base.rename(columns={figure: f"base_{figure}", spread: f"base_{spread}"})
        both = with_speed_up(table.merge(base, on=PLACE, how="left", validate="many_to_one"), figure, spread)
        own = table["variant"] == EAGER
        gains = {f"{which}_{name}": both[name].mask(own.to_numpy()) for name in ("speed_up", "speed_up_std")}
        table = table.assign(**gains)
    return table


def _with_ideal(table: pd.DataFrame, rows: Mapping[str, RowResult]) -> pd.DataFrame:
    """The table with what the data sheet allows the forward pass at least, and the FLOP/s that it reaches."""
    least, flops = [], []
    for one in table.to_dict("records"):
        peaks = peaks_of_device(rows[one["run"]].program.machine.device_name)
        shape = (one["batch_size"], one["context_length"], one["head_dim"])
        bounds = least_ms_of_attention(peaks, one["precision"], *shape)
        least.append(max(bounds) if None not in bounds else np.nan)
        flops.append(causal_attention_flops(*shape))
    return table.assign(ideal_forward_ms=least, forward_flop_per_s=1e3 * np.asarray(flops) / table["forward_ms"])


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


ATTENTION_SWEEP_TABLE = TableSpec(
    "attention_sweep",
    "One row per cell: one attention operator at one width of head and context length",
    (
        ROW_COLUMN,
        *map(column_of, OF_A_CELL),
        *columns("""
    variant | text | | attention, or compiled: the written-out one by torch.compile
    status | text | | complete, out_of_memory, or unsupported (PyTorch refuses it here)
    reason | text | | PyTorch's own reason for that
    passes | int | | measured passes
    forward_ms | float | ms | mean time of a forward pass, the device waited for
    forward_std_ms | float | ms | its standard deviation (n − 1)
    backward_ms | float | ms | mean time of a backward pass, the device waited for
    backward_std_ms | float | ms | its standard deviation (n − 1)
    memory_before_backward_bytes | float | B | bytes in use between forward and backward pass; empty on a CPU
    peak_bytes | float | B | most bytes in use; empty on a CPU
    compile_s | float | s | the pass in which it was compiled, with an empty cache
    forward_speed_up | float | | forward time of the written-out attention ÷ forward_ms
    forward_speed_up_std | float | | its standard deviation, from those of both
    backward_speed_up | float | | backward time of the written-out attention ÷ backward_ms
    backward_speed_up_std | float | | its standard deviation, from those of both
    ideal_forward_ms | float | ms | the later of: unmasked products at the peak FLOP/s, inputs and output at the peak \
        bytes/s
    forward_flop_per_s | float | FLOP/s | FLOPs of the unmasked products ÷ forward_ms
"""),
    ),
    leading=(),
)
