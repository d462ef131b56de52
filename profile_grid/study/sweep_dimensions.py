"""The dimensions of the attention sweep, those of a run that attention alone has and the width of its head, and its
tables."""

from __future__ import annotations

from profile_grid.study.dimensions import ATTENTION, BATCH_SIZE, COMPILE, CONTEXT_LENGTH, COUNT, PRECISION, Dimension

PROGRAM = "attention"
TABLES_OF_SWEEP = ATTENTION_SWEEP, SWEEP_ROWS = ("attention_sweep", "sweep_rows")
BATCH_OF_SWEEP = 8
HEAD_DIM = Dimension(
    key="head_dim", heading="d", meaning="width of the one head", listed="head_dims", value_schema=COUNT,
    in_name="d{}", in_words="with d {}",
)  # fmt: skip
DIMENSIONS = (HEAD_DIM, PRECISION, BATCH_SIZE, COMPILE, ATTENTION)
KEYS = tuple(one.key for one in DIMENSIONS)
OF_A_CELL = (HEAD_DIM, CONTEXT_LENGTH, *DIMENSIONS[1:])
CELL_KEYS = tuple(one.key for one in OF_A_CELL)
