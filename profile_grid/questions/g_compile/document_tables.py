"""The tables that the document of (g) shows."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import Table, escaped
from profile_grid.quantities import ABSENT, count, known, significant
from profile_grid.study.dimensions import COMPILE, MODEL
from profile_grid.tables import ratio_tables
from profile_grid.tables.apart import shown_dimensions, split
from profile_grid.tables.cells import headings_of, leading_cells
from profile_grid.tables.classes import NON_TRIVIAL_SHARE
from profile_grid.tables.measured import Measured
from profile_grid.tables.model_parts import parts_in
from profile_grid.tables.names import BACKWARD, FORWARD

SMALLER = "(smaller ones)"
SHOWN = (*ratio_tables.ALWAYS, COMPILE.key)


def steps_table(measured: Measured) -> Table | None:
    """(g) One line per configuration: its step as written, then its time and speed-up compiled."""
    return ratio_tables.steps_table(measured.tables["compile_times"], COMPILE)


def phases_table(measured: Measured) -> Table | None:
    """(g) One line per compiled run with a backward pass: the speed-up of each phase."""
    return ratio_tables.phases_table(measured.tables["compile_times"], COMPILE)


def kernels_table(measured: Measured) -> Table | None:
    """(g) One line per compiled run: kernels of a step, and GPU time by family of classes, before and after."""
    rows = measured.tables["compile_kernels"]
    if rows.empty:
        return None
    figures = ["base_gpu_time_ms", "gpu_time_ms", "base_invocations", "invocations"]
    families = list(rows.groupby("class")[figures[:2]].sum().sum(axis=1).sort_values(ascending=False).index)
    shown, lines = shown_dimensions(rows, SHOWN), []
    for _, own in rows.groupby("run", sort=False):
        by_class, whole = own.groupby("class")[figures].sum(), own[figures].sum()
        launches = f"{count(whole['base_invocations'])} → {count(whole['invocations'])}"
        times = [_change(by_class.loc[name]) if name in by_class.index else ABSENT for name in families]
        lines.append((*leading_cells(own.iloc[0].to_dict(), shown), launches, _change(whole), *times))
    headings = (measured.words.kernels, "all, ms", *(f"{escaped(name)}, ms" for name in families))
    return Table((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))


def parts_tables(measured: Measured) -> list[tuple[str, Table]]:
    """(g) What the kernels of the forward pass serve, and of the backward pass where a run has one: a column per model,
    a table with its title for each combination of the other dimensions."""
    modes = {FORWARD: measured.inference_mode, BACKWARD: measured.training_mode}
    found = []
    for phase, mode in modes.items():
        rows = measured.tables["compile_parts"]
        rows = rows[(rows["phase"] == phase) & (rows["mode"] == mode)]
        told = split(rows, (MODEL.key,)) if len(rows) else ()
        found += [(", ".join(filter(None, (phase, title))), _parts_table(own)) for title, own in told]
    return found


def _parts_table(rows: pd.DataFrame) -> Table:
    """One line per set of parts, most time first, and one for all that are trivial on both sides."""
    base_share = rows["base_gpu_time_ms"] / rows.groupby("run")["base_gpu_time_ms"].transform("sum")
    trivial = (rows["share"].fillna(0.0) < NON_TRIVIAL_SHARE) & (base_share.fillna(0.0) < NON_TRIVIAL_SHARE)
    lines = rows["parts"].where(~trivial.groupby(rows["parts"]).transform("all"), SMALLER)
    figures = ["base_gpu_time_ms", "gpu_time_ms", "base_others_ms"]
    sums = rows.assign(line=lines).groupby(["line", MODEL.key], sort=False)[figures].sum()
    by_time = sums.groupby("line")["gpu_time_ms"].sum().sort_values(ascending=False, kind="stable").index
    order = sorted(by_time, key=lambda line: line == SMALLER)
    models = list(dict.fromkeys(rows[MODEL.key]))
    cells = (tuple(_sides(line, sums, model) for model in models) for line in order)
    table = tuple((escaped(line), *told) for line, told in zip(order, cells, strict=True))
    return Table(("parts", *(f"{escaped(model)}, ms" for model in models)), table, first_right=1)


def _sides(line: str, sums: pd.DataFrame, model: str) -> str:
    """GPU time before and after; in brackets what the parts of a set take before besides matrix multiplies."""
    if (line, model) not in sums.index:
        return ABSENT
    row = sums.loc[(line, model)]
    fused = len(parts_in(line)) > 1 and not row["base_gpu_time_ms"]
    before = f"({significant(row['base_others_ms'])})" if fused else significant(row["base_gpu_time_ms"])
    return f"{before} → {significant(row['gpu_time_ms'])}"


def cost_table(measured: Measured) -> Table:
    """(g) One line per compiled run: seconds of compilation, what a step gains, and steps until that has paid."""
    rows = measured.tables["compile_cost"]
    shown = shown_dimensions(rows, SHOWN)
    lines = tuple(
        (
            *leading_cells(row, shown), significant(row["compile_s"]), significant(row["gained_ms"]),
            count(round(row["steps_to_pay"])) if known(row["steps_to_pay"]) else "never", count(row["graphs"]),
            count(row["graph_breaks"]),
        )
        for row in rows.to_dict("records")
    )  # fmt: skip
    headings = ("compiling, s", "gain per step, ms", "steps to pay", "graphs", "breaks")
    return Table((*headings_of(shown), *headings), lines, first_right=len(shown))


def _change(figures) -> str:
    return f"{significant(figures['base_gpu_time_ms'])} → {significant(figures['gpu_time_ms'])}"
