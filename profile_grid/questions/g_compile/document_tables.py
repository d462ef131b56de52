"""The tables that the document of (g) shows."""

from __future__ import annotations

from profile_grid.markdown import Table, escaped
from profile_grid.quantities import ABSENT, count, known, significant
from profile_grid.study.dimensions import COMPILE
from profile_grid.tables import ratio_tables
from profile_grid.tables.apart import shown_dimensions
from profile_grid.tables.cells import headings_of, leading_cells
from profile_grid.tables.measured import Measured

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
