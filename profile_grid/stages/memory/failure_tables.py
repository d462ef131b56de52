"""The table of what was live when the memory of a run ran out."""

import numpy as np
import pandas as pd

from cs336_model import ranges
from profile_grid.stages.memory.history import (
    AllocationHistory,
    Category,
    FailedRequest,
    categories_of,
    names_of,
    phases_and_backward,
)
from profile_grid.stages.memory.usage_tables import MEMORY_LARGEST, largest_table, phase_and_range
from profile_grid.study.table_spec import TableSpec, columns
from profile_grid.tables.names import STEP

BEING_MADE = "being made"  # before any step: model, optimizer and tokens that were not finished
MOMENT = ["requested_bytes", "free_bytes", "in_phase", "in_range", "live_bytes"]


def failure_table(history: AllocationHistory, trains: bool) -> pd.DataFrame:
    """One row per group of allocations that were live when the last request failed, the largest first, each with that
    request; no row without a failed request. `trains`: the run has a backward pass.

    The history continues after that moment, since memory is freed while the error passes through the program. Only what
    came before counts, and allocations of the unfinished step have no later life that shows their category."""
    unmet = history.unmet
    if unmet is None:
        return MEMORY_FAILED.empty()
    groups = largest_table(history, _categories(history, unmet, trains), unmet.event - 1)
    phase, path = phase_and_range(history, _range(unmet))
    moment = (unmet.requested_bytes, unmet.free_bytes, phase, path, int(groups["bytes"].sum()))
    return groups.assign(**dict(zip(MOMENT, moment, strict=True)))[MEMORY_FAILED.names].astype(
        {"free_bytes": "Int64", "in_phase": "str", "in_range": "str"}
    )


def _categories(history: AllocationHistory, unmet: FailedRequest, trains: bool) -> list[str]:
    """The category of each allocation, as far as it is known at that moment."""
    categories, phases = names_of(categories_of(history)), phases_and_backward(history)
    path = history.paths[_range(unmet)] if unmet.range is not None else ()
    step = next((number for number in path if history.ranges[number].name == STEP), None)
    for number in np.flatnonzero([holder is None for holder in history.held]):
        range_number = int(history.range[number])
        if unmet.range is None and range_number < 0:
            categories[number] = BEING_MADE
        elif range_number >= 0 and step is not None and step in history.paths[range_number]:
            making = trains and phases.get(range_number, ("",))[0] in (ranges.FORWARD, ranges.LOSS)
            categories[number] = str(Category.ACTIVATIONS if making else Category.TEMPORARY)
    return categories


def _range(unmet: FailedRequest) -> int:
    return -1 if unmet.range is None else unmet.range


MEMORY_FAILED = TableSpec(
    "memory_failed",
    "The largest groups of allocations live when memory ran out, of runs with the stage memory on a GPU",
    columns(
        """
    requested_bytes | int | B | size of the request that failed
    free_bytes | int | B | free memory of the GPU then
    in_phase | text | | phase of the request; (outside) of all steps
    in_range | text | | ranges of the request inside the phase, outermost first
    live_bytes | int | B | requested by all live allocations
    category | text | | as in memory_phases; in the unfinished step activations (forward, loss) and temporary; \
        being made
""",
        MEMORY_LARGEST.as_in(*MEMORY_LARGEST.names[1:]),
    ),
)
