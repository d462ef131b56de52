"""The tables of the memory of each block of one run, and of the types of its numbers."""

import numpy as np
import pandas as pd

from cs336_model import ranges
from profile_grid.stages.memory.history import CATEGORIES, AllocationHistory, Category
from profile_grid.stages.memory.usage_tables import block_of, blocks_of
from profile_grid.study.table_spec import TableSpec, columns


def blocks_table(history: AllocationHistory, category: np.ndarray, live: np.ndarray) -> pd.DataFrame:
    """One row per block in the last measured step. What its backward pass does to memory is only known if each block
    has one range there: those of a recomputed block are split."""
    step = history.measured_steps()[-1]
    forward, backward = (blocks_of(history, step, phase) for phase in (ranges.FORWARD, ranges.BACKWARD))
    saved = _bytes_by_block(history, forward, category == CATEGORIES.index(Category.ACTIVATIONS))
    gradients = _bytes_by_block(history, backward, category == CATEGORIES.index(Category.GRADIENTS))
    residual = _residual_bytes(history, forward)
    total, rows = live.sum(axis=1), []
    in_order = [history.ranges[number] for number in reversed(backward)]  # the last block is the first
    trains = any(name == ranges.BACKWARD for name, _ in history.phases_of(step))
    known = len(in_order) == len(forward)
    for block in forward.values():
        change = None
        if known:
            opened, closed = in_order[block].opened, in_order[block].closed
            change = int(total[closed - 1] - total[opened - 1])
        gradient = gradients.get(len(forward) - 1 - block, 0) if known else None
        rows.append((block, saved.get(block, 0) if trains else None, gradient, change, residual.get(block)))
    return MEMORY_BLOCKS.table(rows, of_a_run=True)


def _bytes_by_block(history: AllocationHistory, blocks: dict[int, int], mask: np.ndarray) -> dict[int, int]:
    """The bytes of these allocations by block."""
    total: dict[int, int] = {}
    for number in np.flatnonzero(mask):
        block = block_of(history, int(history.range[number]), blocks)
        total[block] = total.get(block, 0) + int(history.size[number])
    return total


def _residual_bytes(history: AllocationHistory, blocks: dict[int, int]) -> dict[int, int]:
    """The size of the largest tensor that the range `residual` of each block makes: an activation of its stream."""
    largest: dict[int, int] = {}
    for number in np.flatnonzero(history.range >= 0):
        inside = int(history.range[number])
        block = block_of(history, inside, blocks)
        if block >= 0 and history.ranges[inside].name == ranges.RESIDUAL:
            largest[block] = max(largest.get(block, 0), int(history.size[number]))
    return largest


def dtypes_table(history: AllocationHistory) -> pd.DataFrame:
    """One row per module: the types in the first step."""
    return MODULE_DTYPES.table([[row[name] for name in MODULE_DTYPES.names] for row in history.dtypes], of_a_run=True)


MEMORY_BLOCKS = TableSpec(
    "memory_blocks",
    "One row per run with the stage memory and block of its model, in the last measured step",
    columns("""
    block | int | | number of the block, from 0
    saved_bytes | int | B | allocated in its forward pass and live when the backward pass begins; empty without one
    gradient_bytes | int | B | gradients allocated in its backward pass; empty without one, and with checkpoints
    backward_change_bytes | int | B | live bytes at the end of its backward pass less those at its beginning; empty \
        without one, and with checkpoints
    residual_bytes | int | B | largest tensor made in its range residual: an activation of the residual stream
"""),
)
MODULE_DTYPES = TableSpec(
    "module_dtypes",
    "One row per uncompiled run with the stage memory and module, those of a list together, from the first step",
    columns("""
    module | text | | its path, with * for numbers; (logits) and (loss) for what the model and the loss return
    modules | int | | number of modules
    parameters | text | | types of its parameters, without those of modules inside
    output | text | | types of the tensors that it returns
    gradients | text | | types of the gradients of its parameters; empty without a backward pass
"""),
)
