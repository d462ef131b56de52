"""The energy of a step before and after, of the runs whose energy both sides counted on the same device."""

from __future__ import annotations

import numpy as np
import pandas as pd

from profile_grid.comparing.cells import not_comparable
from profile_grid.comparing.results import Results
from profile_grid.study.dimensions import LEADING
from profile_grid.study.stages import ENERGY
from profile_grid.study.table_spec import TableSpec, columns
from profile_grid.tables.ratios import ratio_and_std

FIGURE, SPREAD = "joules_per_step", "joules_per_step_std"
KEPT = ["run", "counter", FIGURE, SPREAD]
RENAMED = {FIGURE: f"before_{FIGURE}", SPREAD: f"before_{SPREAD}"}
ENERGIES = TableSpec(
    "energies",
    "One row per run whose energy both sides counted",
    columns(f"""
    counter | text | | as in energy
    before_{FIGURE} | float | J | energy of a step before
    before_{SPREAD} | float | J | its standard deviation between windows
    {FIGURE} | float | J | energy of a step after
    {SPREAD} | float | J | its standard deviation between windows
    ratio | float | | after ÷ before
    ratio_std | float | | its standard deviation, from those of both
"""),
)


def energies(before: Results, after: Results) -> pd.DataFrame:
    """One row per run: joules of a step on both sides with their standard deviations between windows, and the ratio
    after ÷ before with its own. The windows of a side are of one process, so there is no verdict."""
    if not all("energy" in results.tables for results in (before, after)):
        return pd.DataFrame(columns=ENERGIES.all_names)
    one, other = (_by_run(results) for results in (before, after))
    both = other.merge(one.rename(columns=RENAMED), on=["run", "counter"])
    same = [not_comparable(name, before, after, ENERGY.status_column) is None for name in both["run"]]
    both = both[np.array(same, bool)].reset_index(drop=True)
    both = both.assign(**{key: [after.runs[name][key] for name in both["run"]] for key in LEADING})
    ratio, std = ratio_and_std(both[FIGURE], both[SPREAD], both[RENAMED[FIGURE]], both[RENAMED[SPREAD]])
    return both.assign(ratio=ratio, ratio_std=std)[ENERGIES.all_names]


def _by_run(results: Results) -> pd.DataFrame:
    """The energy of every run of a side, under the name that it has there."""
    named = pd.DataFrame([(name, results.own(name)) for name in results.runs], columns=["name", "run"])
    return named.merge(results.tables["energy"][KEPT], on="run").drop(columns="run").rename(columns={"name": "run"})
