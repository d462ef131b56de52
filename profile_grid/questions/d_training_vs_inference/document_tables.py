"""The tables that the document of (d) shows."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import Table, escaped
from profile_grid.quantities import ABSENT, percent, points, significant
from profile_grid.questions.d_training_vs_inference.shares import phase_shares, training_change
from profile_grid.study.dimensions import MODE, keys_without
from profile_grid.tables.apart import pivoted
from profile_grid.tables.cells import by_size, run_table, small_ones_together
from profile_grid.tables.classes import MATMUL
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import BACKWARD, FORWARD

MOST_PARTS = 7
VISIBLE_SHARE = 0.0005  # a phase that reads 0.0 % in every row has no column


def change_table(measured: Measured) -> Table | None:
    """(d) Every class's share in inference and in training; the first columns are the matrix multiplies. None where
    no configuration has both."""
    place = keys_without(MODE.key)
    change = small_ones_together(training_change(measured), ["inference", "training"], place)
    if change.empty:
        return None
    wide = pivoted(change, place, "family", ["inference", "training"])
    families = by_size(change.assign(share=change[["inference", "training"]].max(axis=1)))
    cells = {}
    for run in measured.runs[measured.runs["mode"] == measured.training_mode].to_dict("records"):
        at = tuple(run[key] for key in place)
        if at in wide.index:
            before, after = wide.loc[at, "inference"], wide.loc[at, "training"]
            cells[run["run"]] = tuple(_change_cell(before[name], after[name], name == MATMUL) for name in families)
    return run_table(measured, tuple(f"{escaped(name)}, %" for name in families), cells, measured.training_mode)


def phase_table(measured: Measured) -> Table | None:
    """(d) Each phase's share of the training step, and of that phase the share of matrix multiplies; None where no
    training was captured."""
    shares = phase_shares(measured)
    if shares.empty:
        return None
    largest = shares.groupby("phase")["of_step"].max()
    phases = [phase for phase in dict.fromkeys(shares["phase"]) if largest[phase] >= VISIBLE_SHARE]
    cells = {}
    for run, rows in shares.groupby("run", sort=False):
        found = {row.phase: f"{percent(row.of_step)} ({percent(row.matmul)})" for row in rows.itertuples()}
        cells[run] = tuple(found.get(phase, ABSENT) for phase in phases)
    return run_table(measured, tuple(escaped(phase) for phase in phases), cells, measured.training_mode)


def parts_table(measured: Measured) -> Table | None:
    """(d) Time of the parts with most of it, forward and backward; None where no capture tells the backward ones."""
    rows = _of_training(measured)
    if rows.empty:
        return None
    most = rows.groupby("part")["share"].max().sort_values(ascending=False).index[:MOST_PARTS]
    parts = [part for part in dict.fromkeys(rows["part"]) if part in most]
    cells = {}
    for run, own in rows.groupby("run", sort=False):
        wide = pivoted(own, ["part"], "pass", ["gpu_time_ms"])["gpu_time_ms"]
        cells[run] = tuple(_both_passes(wide.loc[part]) if part in wide.index else ABSENT for part in parts)
    return run_table(measured, tuple(f"{escaped(part)}, ms" for part in parts), cells, measured.training_mode)


def _of_training(measured: Measured) -> pd.DataFrame:
    """The forward and backward times of parts in the mode that answers for training; no rows where there is none."""
    rows = measured.tables["training_parts"]
    return rows[(rows["mode"] == measured.training_mode) & rows["pass"].isin((FORWARD, BACKWARD))]


def _both_passes(times: pd.Series) -> str:
    return " → ".join(significant(times.get(one)) for one in (FORWARD, BACKWARD))


def _change_cell(before: float, after: float, with_points: bool) -> str:
    change = f" ({points(after - before)})" if with_points else ""
    return f"{100 * before:.1f} → {100 * after:.1f}{change}"
