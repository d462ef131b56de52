"""All tables of a comparison."""

from __future__ import annotations

import pandas as pd

from profile_grid.comparing.cells import CELLS, cells
from profile_grid.comparing.changes import CHANGED_FACTS, CHANGES, changes, facts_that_differ
from profile_grid.comparing.energy import ENERGIES, energies
from profile_grid.comparing.results import Results


def comparison(before: Results, after: Results) -> dict[str, pd.DataFrame]:
    """By name: `facts` that differ, `cells` with their verdicts, `energies`, and `changes` in the captures.
    Raises WrongTable where one is not as it is declared."""
    made = {
        CHANGED_FACTS: facts_that_differ(before, after),
        CELLS: cells(before, after),
        ENERGIES: energies(before, after),
        CHANGES: changes(before, after),
    }
    for declared, table in made.items():
        declared.check(table)
    return {declared.name: table for declared, table in made.items()}
