"""What was live when memory ran out: by what it was for, and the largest allocations.

The history goes on behind that moment, since what a program holds is freed while the error passes through it. So only
what came before counts, and what was made in the step that did not end has no later life to tell what it was for.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from cs336_model import ranges
from profile_grid.stages.memory.categories import Category, categories_of, names_of, phases_and_backward
from profile_grid.stages.memory.history import AllocationHistory, FailedAllocationRecord
from profile_grid.stages.memory.usage_tables import MEMORY_FAILED, largest_table, place
from profile_grid.tables.names import STEP

BEING_MADE = "being made"  # before any step: model, optimizer and tokens that never came to be
MOMENT = ["requested_bytes", "free_bytes", "in_phase", "in_range", "live_bytes"]


def failure_table(history: AllocationHistory, trains: bool) -> pd.DataFrame:
    """One row per group of allocations that were live when the last request could not be met, the largest first, each
    with that request; no row where none was. `trains`: the run has a backward pass."""
    unmet = history.unmet
    if unmet is None:
        return MEMORY_FAILED.empty()
    groups = largest_table(history, _categories(history, unmet, trains), unmet.event - 1)
    phase, path = place(history, _range(unmet))
    moment = (unmet.requested_bytes, unmet.free_bytes, phase, path, int(groups["bytes"].sum()))
    return groups.assign(**dict(zip(MOMENT, moment, strict=True)))[MEMORY_FAILED.names].astype(
        {"free_bytes": "Int64", "in_phase": "str", "in_range": "str"}
    )


def _categories(history: AllocationHistory, unmet: FailedAllocationRecord, trains: bool) -> list[str]:
    """Per allocation what it was for, as far as the moment tells it."""
    categories, phases = names_of(categories_of(history)), phases_and_backward(history)
    path = history.paths[_range(unmet)] if unmet.range is not None else ()
    step = next((number for number in path if history.ranges[number].name == STEP), None)
    for number in np.flatnonzero([held is None for held in history.held]):
        range_number = int(history.range[number])
        if unmet.range is None and range_number < 0:
            categories[number] = BEING_MADE
        elif range_number >= 0 and step is not None and step in history.paths[range_number]:
            making = trains and phases.get(range_number, ("",))[0] in (ranges.FORWARD, ranges.LOSS)
            categories[number] = str(Category.ACTIVATIONS if making else Category.TEMPORARY)
    return categories


def _range(unmet: FailedAllocationRecord) -> int:
    return -1 if unmet.range is None else unmet.range
