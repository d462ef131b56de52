"""The part of the model and the pass to which each range path belongs."""

import pandas as pd

from kernel_tables.attribution.path_text import innermost, names_in
from profile_grid.tables.names import BACKWARD, FORWARD, LOSS, NO_RANGE, RECOMPUTATION
from range_marks import JOINT

KEY_COLUMNS = ["run", "phase", "range"]


def ranges_with_parts(kernels: pd.DataFrame) -> pd.DataFrame:
    """The distinct values of KEY_COLUMNS in these kernels, with `pass` and `part`. The pass is backward, recomputation
    inside it, or forward, which includes the loss and everything else. The part is that of the model, or the joined
    names of all parts that a compiled kernel computes."""
    distinct = kernels[KEY_COLUMNS].drop_duplicates()
    forward_parts: dict[str, set[str]] = {}  # by run, all range names outside its backward pass
    for run, phase, path in distinct.itertuples(index=False, name=None):
        names = names_in(path) if phase != BACKWARD else []
        forward_parts.setdefault(run, {LOSS}).update(part for name in names for part in parts_in(name))
    passes, parts = [], []
    for run, phase, path in distinct.itertuples(index=False, name=None):
        pass_, part = _pass_and_part(phase, names_in(path), forward_parts[run])
        passes.append(pass_)
        parts.append(part)
    return distinct.assign(**{"pass": passes, "part": parts})


def innermost_parts(paths: pd.Series) -> pd.Series:
    """The innermost range of each of these paths; NO_RANGE for an empty or missing path."""
    return paths.fillna("").astype(object).map(innermost).replace("", NO_RANGE)


def has_range(paths: pd.Series, name: str) -> pd.Series:
    """Which of these paths (missing without a range) contain a range of this name."""
    return paths.isin([path for path in paths.dropna().unique() if name in names_in(path)])


def rows_in_parts(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table with a column `part`; no rows if none is inside the range of a part."""
    return rows if (rows["part"] != NO_RANGE).any() else rows.iloc[:0]


def parts_in(name: str) -> list[str]:
    """The parts that a range name contains: one, or several of a compiled kernel."""
    return name.split(JOINT)


def _pass_and_part(phase: str, names: list[str], forward_parts: set[str]) -> tuple[str, str]:
    """(pass, part). The part is the innermost range. In the backward pass, where libraries open ranges of their own, it
    is the innermost range that also occurs outside the backward pass; NO_RANGE without one."""
    if phase != BACKWARD:
        without_range = LOSS if phase == LOSS else NO_RANGE
        return FORWARD, names[-1] if names else without_range
    part = next((name for name in reversed(names) if forward_parts.issuperset(parts_in(name))), NO_RANGE)
    return RECOMPUTATION if RECOMPUTATION in names else BACKWARD, part
