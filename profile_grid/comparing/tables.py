"""All tables of a comparison."""

from __future__ import annotations

import pandas as pd

from profile_grid.comparing.cells import cells
from profile_grid.comparing.changes import changes, facts_that_differ
from profile_grid.comparing.energy import energies
from profile_grid.comparing.results import Results


def comparison(before: Results, after: Results) -> dict[str, pd.DataFrame]:
    """By name: `facts` that differ, `cells` with their verdicts, `energies`, and `changes` in the captures."""
    return {
        "facts": facts_that_differ(before, after),
        "cells": cells(before, after),
        "energies": energies(before, after),
        "changes": changes(before, after),
    }
