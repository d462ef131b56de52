"""The tables that the document of (f) shows."""

from __future__ import annotations

import pandas as pd

from profile_grid.markdown import Table, escaped
from profile_grid.quantities import ABSENT, known, ratio, significant, with_spread
from profile_grid.study.dimensions import CONTEXT_LENGTH, MODEL, PRECISION, keys_without
from profile_grid.tables.apart import pivoted, shown_dimensions, sorted_values, split
from profile_grid.tables.cells import headings_of, leading_cells
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD, MAIN_PHASES, WHOLE_STEP

ALWAYS = (MODEL.key, CONTEXT_LENGTH.key, "mode")
PLACE = keys_without(PRECISION.key)


def steps_table(measured: Measured) -> Table | None:
    """(f) One line per configuration: its step in fp32, then its time and speed-up in each other precision; None where
    no two runs can be compared."""
    rows = measured.tables["precision_times"]
    rows = rows[rows["phase"] == WHOLE_STEP]
    if rows.empty:
        return None
    names = sorted_values(rows, PRECISION.key)
    wide = pivoted(rows, PLACE, PRECISION.key, ["mean_ms", "std_ms", "speed_up", "speed_up_std"])
    base = rows.drop_duplicates(PLACE)
    shown = shown_dimensions(base, ALWAYS, hidden=(PRECISION.key,))
    lines = []
    for row in base.to_dict("records"):
        own = wide.loc[tuple(row[key] for key in PLACE)]
        cells = [
            _time_and_gain(*(own[(name, one)] for name in ("mean_ms", "speed_up", "speed_up_std"))) for one in names
        ]
        lines.append((*leading_cells(row, shown), with_spread(row["base_mean_ms"], row["base_std_ms"]), *cells))
    headings = (*headings_of(shown), f"{PRECISION.default}, ms", *(f"{name}, ms" for name in names))
    return Table(headings, tuple(lines), first_right=len(shown))


def phases_table(measured: Measured) -> Table | None:
    """(f) One line per configuration with a backward pass and precision: the speed-up of each phase; None without."""
    rows = measured.tables["precision_times"]
    phases = [phase for phase in MAIN_PHASES if phase in set(rows["phase"])]
    rows = rows[(rows["mode"] != FORWARD) & rows["phase"].isin(phases)]
    if rows.empty:
        return None
    keys = [*PLACE, PRECISION.key]
    wide = pivoted(rows, keys, "phase", ["speed_up", "speed_up_std"])
    runs = rows.drop_duplicates(keys)
    shown = shown_dimensions(runs, (*ALWAYS, PRECISION.key))
    lines = []
    for row in runs.to_dict("records"):
        own = wide.loc[tuple(row[key] for key in keys)]
        gains = [ratio(own.get(("speed_up", phase)), own.get(("speed_up_std", phase))) for phase in phases]
        lines.append((*leading_cells(row, shown), *gains))
    return Table((*headings_of(shown), *phases), tuple(lines), first_right=len(shown))


def parts_tables(measured: Measured) -> list[tuple[str, Table]]:
    """(f) Speed-up of the GPU time of each part of the forward pass, one column per model, one table for each
    combination of the other dimensions that vary, with its title."""
    rows = measured.mode("precision_parts", measured.inference_mode)
    rows = rows[rows["phase"] == FORWARD]
    return [(title, _parts_table(part)) for title, part in split(rows, (MODEL.key, "mode"))] if len(rows) else []


def _parts_table(rows: pd.DataFrame) -> Table:
    wide = pivoted(rows, ["part"], MODEL.key, ["speed_up", "base_share"])
    models = list(dict.fromkeys(rows[MODEL.key]))
    order = wide["base_share"].mean(axis=1).sort_values(ascending=False).index
    lines = tuple((escaped(part), *(ratio(wide["speed_up"][model][part]) for model in models)) for part in order)
    return Table(("part", *(escaped(model) for model in models)), lines, first_right=1)


def accuracy_table(measured: Measured) -> Table:
    """(f) One line per timed run: its relative errors, what its precision explains, and whether that is enough."""
    rows = measured.tables["precision_accuracy"]
    shown = shown_dimensions(rows, (*ALWAYS, PRECISION.key))
    lines = []
    for row in rows.to_dict("records"):
        errors = [_error(row[f"{name}_error"]) for name in ("loss", "logits", "gradient_norm", "explained")]
        within = (
            {True: "yes", False: "**no**"}[bool(row["within_precision"])] if known(row["within_precision"]) else ABSENT
        )
        lines.append((*leading_cells(row, shown), *errors, within))
    headings = ("loss", "logits", "norm of the gradients", "explained", "within")
    return Table((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))


def _time_and_gain(ms: float, gain: float, std: float) -> str:
    return f"{significant(ms)} ({ratio(gain, std)})" if known(ms) else ABSENT


def _error(value: float | None) -> str:
    return f"{value:.1e}" if known(value) else ABSENT
