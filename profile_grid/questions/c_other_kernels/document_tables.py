"""The tables that the document of (c) shows."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import Table, escaped
from profile_grid.quantities import ABSENT, known, percent
from profile_grid.study.dimensions import CONTEXT_LENGTH, LEADING, MODE, MODEL
from profile_grid.tables.apart import pivoted, split
from profile_grid.tables.cells import by_size, run_table, small_ones_together
from profile_grid.tables.classes import NON_TRIVIAL_SHARE, family_shares
from profile_grid.tables.measured import Measured
from profile_grid.tables.model_parts import told_apart
from profile_grid.tables.names import FORWARD_OTHERS

__all__ = ["NON_TRIVIAL_SHARE", "class_table", "others_table", "parts_tables"]
TOLD = 3


def class_table(measured: Measured) -> Table:
    """(c) Shares of the forward pass's GPU time by class, the classes with most time first."""
    shares = family_shares(measured.inference("forward_classes"))
    shares = small_ones_together(shares, ["share"], LEADING)
    families = by_size(shares)
    wide = pivoted(shares, ["run"], "family", ["share"])["share"]
    cells = {run: tuple(percent(wide.loc[run, name]) for name in families) for run in wide.index}
    return run_table(measured, tuple(escaped(name) for name in families), cells)


def others_table(measured: Measured) -> Table:
    """(c) Outside matrix multiplies: the parts of the model and the kernels with most time, in order."""
    parts, top = told_apart(measured.inference("forward_parts")), measured.inference("top_kernels")
    top = top[top["scope"] == FORWARD_OTHERS]
    cells = {}
    for run in measured.runs["run"]:
        own = parts[(parts["run"] == run) & (parts["other_time_ms"] > 0)].nlargest(TOLD, "other_time_ms")
        named = top[top["run"] == run].head(TOLD)
        if not named.empty:
            told = [f"{escaped(row.part)} {percent(row.other_share)}" for row in own.itertuples()]
            kernels = [f"{measured.label(row.kernel)} {percent(row.share)}" for row in named.itertuples()]
            cells[run] = (*([] if parts.empty else [", ".join(told)]), ", ".join(kernels))
    headings = (*([] if parts.empty else ["parts of the model"]), measured.words.kernels)
    return run_table(measured, headings, cells, text=True)


def parts_tables(measured: Measured) -> tuple[int, list[tuple[str, Table]]] | None:
    """(c) Share of the forward pass by part of the model, one column per model, and the context at which: the longest
    that most models have. One table for each combination of further dimensions that vary, with its title."""
    parts = told_apart(measured.inference("forward_parts"))
    if parts.empty:
        return None
    models_at = parts.groupby(CONTEXT_LENGTH.key)[MODEL.key].nunique()
    context = max(models_at[models_at == models_at.max()].index)
    rows = parts[parts[CONTEXT_LENGTH.key] == context]
    shown = (MODEL.key, CONTEXT_LENGTH.key, MODE.key)
    return int(context), [(title, _parts_table(some)) for title, some in split(rows, shown)]


def _parts_table(rows: pd.DataFrame) -> Table:
    wide = pivoted(rows, ["part"], MODEL.key, ["share", "other_share"])
    models = list(dict.fromkeys(rows[MODEL.key]))
    order = wide["share"].mean(axis=1).sort_values(ascending=False).index
    lines = tuple(
        (escaped(part), *(_share_and_others(wide["share"][m][part], wide["other_share"][m][part]) for m in models))
        for part in order
    )
    return Table(("part", *(escaped(model) for model in models)), lines, first_right=1)


def _share_and_others(share: float, others: float) -> str:
    return f"{percent(share)} ({percent(others)})" if known(share) else ABSENT
