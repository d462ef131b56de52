"""The table of attention alone: a row per cell, with its speed-up over eager attention."""

import pandas as pd

from cs336_model.program.variants.values import EAGER, NOT_COMPILED
from profile_grid.gpu_peaks import peaks_of
from profile_grid.results.results import COMPLETE
from profile_grid.stages.operator.tables import BENCH_PASSES, KEYS, LEADING_COLUMNS, OPERATOR_TIMES
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables.ideal import attention_flops, least_ms_of_attention
from profile_grid.tables.per_pass import Merged, as_floats
from profile_grid.tables.ratios import with_speed_up

PASSES = ("forward", "backward")
KEY_COLUMNS = [key for key in KEYS if key not in ("compile", "attention")]  # cells that agree here differ in variant
COMPILED = "compiled"  # the variant that is eager attention, compiled; the others are kinds of attention, not compiled


def attention_sweep(merged: Merged) -> pd.DataFrame:
    """One row per cell, with speed-ups over eager attention and the least time of the forward pass."""
    cells = merged["operator_times"].copy()
    variant = cells["attention"].where(cells["compile"] == NOT_COMPILED, COMPILED)
    cells.insert(len(LEADING_COLUMNS), "variant", variant)  # as the first column after the dimensions
    devices = merged["runs"].set_index("run")["device_name"]
    return _with_ideal(_with_speed_ups(cells), devices)


def pairs_with_eager(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells of other variants that have a counterpart with eager attention. `base_both_ms` is the counterpart's
    `both_ms`, `gain` the speed-up over it; NaN if either has no value."""
    base = cells.loc[cells["variant"] == EAGER, [*KEY_COLUMNS, "both_ms"]].rename(columns={"both_ms": "base_both_ms"})
    pairs = cells[cells["variant"] != EAGER].merge(base, on=KEY_COLUMNS)
    return pairs.assign(gain=pairs["base_both_ms"] / pairs["both_ms"])


def _with_speed_ups(table: pd.DataFrame) -> pd.DataFrame:
    """The table with forward_speed_up, backward_speed_up and their standard deviations. They are NaN for eager
    attention itself, and where the cell or its counterpart with eager attention has no time."""
    is_eager = table["variant"] == EAGER
    eager = table[is_eager & (table["status"] == COMPLETE)]
    for pass_name in PASSES:
        mean, std = f"{pass_name}_ms", f"{pass_name}_std_ms"
        base = eager[[*KEY_COLUMNS, mean, std]].rename(columns={mean: f"base_{mean}", std: f"base_{std}"})
        with_base = table.merge(base, on=KEY_COLUMNS, how="left", validate="many_to_one").set_axis(table.index)
        gains = with_speed_up(with_base, mean, std)[["speed_up", "speed_up_std"]].mask(is_eager)
        table = table.join(gains.add_prefix(f"{pass_name}_"))
    return table


def _with_ideal(table: pd.DataFrame, devices: pd.Series) -> pd.DataFrame:
    """The table with the least time of the forward pass by the data sheet, the FLOP/s that it reached, and the share of
    the peak that single calls reached."""
    limits = []  # per row: FLOPs by pass; least_ms and flop_per_s by the data sheet, None if unknown
    for row in table.to_dict("records"):
        shape = (row["batch_size"], row["context_length"], row["head_dim"])  # one head: as wide as all heads together
        peaks = peaks_of(devices[row["run"]])
        bounds_ms = least_ms_of_attention(peaks, row["precision"], *shape)  # by FLOP/s, by bytes/s
        least_ms = max(bounds_ms) if None not in bounds_ms else None
        flop_per_s = peaks.flop_per_s(row["precision"]) if peaks else None
        limits.append(attention_flops(*shape) | {"least_ms": least_ms, "flop_per_s": flop_per_s})
    limits = pd.DataFrame(limits, table.index, [*BENCH_PASSES, "least_ms", "flop_per_s"], dtype="float64")
    rates = {name: 1e3 * limits[name] / as_floats(table[f"bench_{name}_ms"]) for name in BENCH_PASSES}
    return table.assign(
        ideal_forward_ms=limits["least_ms"],
        forward_flop_per_s=1e3 * limits["forward"] / as_floats(table["forward_ms"]),
        **{f"bench_{name}_of_peak": rates[name] / limits["flop_per_s"] for name in BENCH_PASSES},
    )


TABLES = (
    TableSpec(
        "attention_sweep",
        "One row per cell: an attention operator at a head size and context length",
        columns(
            "variant | text | | attention, or compiled: eager attention by torch.compile",
            OPERATOR_TIMES.columns,
            """
    forward_speed_up | float | | forward time of eager attention ÷ forward_ms
    forward_speed_up_std | float | | its standard deviation, from those of both
    backward_speed_up | float | | backward time of eager attention ÷ backward_ms
    backward_speed_up_std | float | | its standard deviation, from those of both
    ideal_forward_ms | float | ms | the longer of: unmasked products at the peak FLOP/s; inputs and output at the peak \
        bytes/s
    forward_flop_per_s | float | FLOP/s | FLOPs of the unmasked products ÷ forward_ms
    bench_forward_of_peak | float | | FLOP/s of bench_forward_ms ÷ the peak of the data sheet in this precision; \
        FLOPs: 2 products of 2 d for each unmasked score
    bench_backward_of_peak | float | | the same of bench_backward_ms, with 5 products
    bench_both_of_peak | float | | the same of bench_both_ms, with 7 products
""",
        ),
        make=attention_sweep,
        leading=LEADING_COLUMNS,
    ),
)
PAGE_TABLES = (
    PageTable(
        "attention_sweep", "Forward and backward pass of every cell",
        (
            "head_dim", "context_length", "variant", "status", "reason", "forward_ms", "forward_std_ms", "backward_ms",
            "backward_std_ms", "memory_before_backward_bytes", "peak_bytes", "compile_s", "output_error",
            "gradient_error", "forward_speed_up", "backward_speed_up", "ideal_forward_ms", "bench_forward_ms",
            "bench_backward_ms", "bench_both_ms", "bench_both_of_peak",
        ),
    ),
)  # fmt: skip
