"""The tables that the document of (e) shows."""

from __future__ import annotations

from kernel_tables.markdown import Table, escaped
from profile_grid.quantities import count, rate, significant
from profile_grid.questions.e_attention.table import MATMULS, PARTS, SOFTMAX
from profile_grid.study.dimensions import MODE, keys_without
from profile_grid.tables.apart import shown_dimensions
from profile_grid.tables.cells import LED_BY, headings_of, leading_cells, run_table
from profile_grid.tables.measured import Measured


def attention_table(measured: Measured) -> Table:
    """(e) GPU time of one layer's parts of attention, rates, and the two ratios of softmax to the matrix multiplies."""
    return _table_of(measured, "attention", measured.inference_mode)


def backward_table(measured: Measured) -> Table | None:
    """(e) The same in the backward pass of training; None where no capture tells its parts apart."""
    mode = measured.training_mode
    if mode is None or measured.mode("attention_backward", mode).empty:
        return None
    return _table_of(measured, "attention_backward", mode)


def _table_of(measured: Measured, name: str, mode: str) -> Table:
    rows = measured.mode(name, mode)
    parts = [part for part in PARTS if part in set(rows["part"])]
    headings = (*(f"{part}, µs" for part in parts), "matmuls", "softmax", "runtime ratio", "FLOP ratio")
    cells = {}
    for run, own in rows.groupby("run", sort=False):
        by_part = own.set_index("part")
        times = [significant(by_part["gpu_time_per_layer_us"].get(part)) for part in parts]
        matmuls = by_part[by_part.index.isin(MATMULS)]
        seconds = matmuls["gpu_time_per_layer_us"].sum() * 1e-6
        rate_of_matmuls = matmuls["flops_per_layer"].sum() / seconds if seconds else None  # fused attention has none
        softmax = by_part.loc[SOFTMAX] if SOFTMAX in by_part.index else {}
        cells[run] = (
            *times,
            rate(rate_of_matmuls),
            rate(softmax.get("flop_per_s")),
            significant(softmax.get("runtime_to_matmuls")),
            significant(softmax.get("flops_to_matmuls")),
        )
    return run_table(measured, headings, cells, mode)


def flops_table(measured: Measured) -> Table | None:
    """(e) FLOPs of one layer's parts of attention: the formula, and the number for every configuration; None where the
    sizes that they follow from are not known."""
    rows = measured.inference("attention")
    rows = rows[rows["part"].isin(PARTS) & rows["flops_per_layer"].notna()]
    if rows.empty:
        return None
    formulas = rows.drop_duplicates("part").set_index("part")["flops_formula"]
    shown, lines = shown_dimensions(rows, LED_BY, hidden=(MODE.key,)), []
    for _, own in rows.groupby(keys_without(MODE.key), sort=False):
        flops = own.set_index("part")["flops_per_layer"]
        cells = (count(flops.get(part)) for part in formulas.index)
        lines.append((*leading_cells(own.iloc[0].to_dict(), shown), *cells))
    headings = (f"{part}: {escaped(formula)}" for part, formula in formulas.items())
    return Table((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))
