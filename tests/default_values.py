"""The dimensions of a run in tests, without those that a test chooses: model, mode, length and batch."""

from profile_grid.study.dimensions import BATCH_SIZE, DIMENSIONS

DEFAULT_VALUES = {one.key: one.default for one in DIMENSIONS if one.default is not None and one is not BATCH_SIZE}
