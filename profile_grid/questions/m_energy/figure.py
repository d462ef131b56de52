"""Figure of (m): the energy of a token in every run, divided into idle power and the rest."""

import pandas as pd

from profile_grid.figures import marks, panels, run_selection
from profile_grid.quantities import interval, significant
from profile_grid.questions.m_energy.document import millijoules
from profile_grid.study.stages import ENERGY


def energy_parts(energies: pd.DataFrame) -> pd.DataFrame:
    """One row per run and part of the energy of a token: `mj`, and the ends of its bar, `start` and `end`."""
    waiting_share, idle_share = energies["waiting_share"].fillna(0.0), energies["idle_share"]  # of time; of power
    shares = {
        "idle power while waiting": waiting_share * idle_share,
        "idle power while working": (1 - waiting_share) * idle_share,
        "above idle power": 1 - idle_share,
    }
    token_mj = 1e3 * energies["joules_per_token"]
    parts = pd.concat([energies.assign(part=part, mj=share * token_mj) for part, share in shares.items()])
    return marks.stacked(parts[parts["mj"] > 0].reset_index(drop=True), "mj", "part")


def draw(tables: panels.Tables) -> panels.Drawing:
    """A bar per run: the energy of a token; its value and the mean power after the bar."""
    runs, energies = tables["runs"], run_selection.sorted_by_size(tables["energy_use"], tables["runs"])
    texts = [f"{millijoules(row.joules_per_token)}, {significant(row.power_w)} W" for row in energies.itertuples()]
    energies = energies.assign(bar=run_selection.labels(energies), text=texts)
    return panels.bars_of_runs(
        energy_parts(energies), list(energies["bar"]), color_column="part", axis_title="energy of a token (mJ)",
        tooltip=(("part", "part"), ("mj", "mJ", marks.DIGITS), ("power_w", "mean W", marks.DIGITS)),
        runs=runs, missing=run_selection.runs_without_results(runs, ENERGY),
        reason="No run has a measurement of energy.",
        notes=["After each bar: the energy of a token, and the mean power during steps."],
    )  # fmt: skip


def result(tables: panels.Tables) -> str:
    """The energy of a token, from the least to the most."""
    return f"A token takes {interval(tables['energy_use']['joules_per_token'], millijoules)}"


FIGURES = (
    panels.Figure(
        "energy", "Energy of a token, and the part of it that idle power takes", draw, result,
        tables=("runs", "energy_use"),
    ),
)  # fmt: skip
