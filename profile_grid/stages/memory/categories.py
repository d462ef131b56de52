"""What every allocation is for: parameters, gradients, optimizer state, activations, data, workspace, or temporary.

What held an allocation at the end of the process tells the first three and the data. All else follows from when it was
made and freed: made in a forward pass or loss and live when the backward pass of its step begins, it is an activation;
made in a backward pass and live at its end, a gradient; never freed, a workspace; anything else is temporary.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from cs336_model import ranges
from profile_grid.stages.memory.history import AllocationHistory, RangeSpan
from profile_grid.tables.names import STEP


class Category(StrEnum):
    """The categories, in the order in which they are shown."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer state"
    ACTIVATIONS = "activations"
    TEMPORARY = "temporary"
    WORKSPACE = "workspace"
    DATA = "data"


CATEGORIES = tuple(Category)
MAKING_ACTIVATIONS = (ranges.FORWARD, ranges.LOSS)


def categories_of(history: AllocationHistory) -> np.ndarray:
    """Per allocation the position of its category in CATEGORIES."""
    phases = phases_and_backward(history)
    categories = []
    for number, held in enumerate(history.held):
        phase, backward = phases.get(int(history.range[number]), ("", None))
        categories.append(CATEGORIES.index(Category(held) if held else _by_life(history, number, phase, backward)))
    return np.array(categories, dtype="int64")


def names_of(category: np.ndarray) -> list[str]:
    """The names of these categories."""
    return [str(CATEGORIES[number]) for number in category]


def _by_life(history: AllocationHistory, number: int, phase: str, backward: RangeSpan | None) -> Category:
    """The category of what nothing held at the end; `backward` is the backward pass of its step."""
    freed = history.freed[number]
    if freed >= history.events:
        return Category.WORKSPACE
    if backward is not None and phase in MAKING_ACTIVATIONS and freed >= backward.opened:
        return Category.ACTIVATIONS
    if backward is not None and phase == ranges.BACKWARD and freed >= backward.closed:
        return Category.GRADIENTS
    return Category.TEMPORARY


def phases_and_backward(history: AllocationHistory) -> dict[int, tuple[str, RangeSpan | None]]:
    """Per range in a step: the name of its phase, and the backward pass of its step, if it has one."""
    backward = {span.inside: span for span in history.ranges if span.name == ranges.BACKWARD}
    phases = {}
    for number, path in enumerate(history.paths):
        names = history.names(number)
        if STEP in names[:-1]:
            at = names.index(STEP)
            phases[number] = (names[at + 1], backward.get(path[at]))
    return phases


def live_bytes(history: AllocationHistory, category: np.ndarray) -> np.ndarray:
    """Live bytes by state and category, shape (events, categories): row n is state n."""
    change = np.zeros((history.events + 1, len(CATEGORIES)), dtype="int64")
    np.add.at(change, (history.made, category), history.size)
    np.add.at(change, (history.freed, category), -history.size)  # what is never freed goes behind the last event
    return change[:-1].cumsum(axis=0)
