"""The part of the model, and the pass through it, of every range path."""

import pandas as pd

from kernel_tables.attribution.path_text import names_in
from profile_grid.tables.names import BACKWARD, FORWARD, LOSS, NO_RANGE, RECOMPUTATION
from range_marks import JOINT

KEY_COLUMNS = ["run", "phase", "range"]


def ranges_with_parts(kernels: pd.DataFrame) -> pd.DataFrame:
    """The distinct values of KEY_COLUMNS in these kernels, with their `pass` (forward, with the loss and all else;
    backward; recomputation in it) and `part`: the part of the model, or the set of parts of a compiled kernel."""
    places = kernels[KEY_COLUMNS].drop_duplicates()
    of_forward: dict[str, set[str]] = {}  # by run the names of ranges outside its backward pass
    for run, phase, path in places.itertuples(index=False, name=None):
        forward = names_in(path) if phase != BACKWARD else []
        of_forward.setdefault(run, {LOSS}).update(part for name in forward for part in parts_in(name))
    pairs = [
        _pass_and_part(phase, names_in(path), of_forward[run])
        for run, phase, path in places.itertuples(index=False, name=None)
    ]
    return places.assign(**{"pass": [pass_ for pass_, _ in pairs], "part": [part for _, part in pairs]})


def has_range(paths: pd.Series, name: str) -> pd.Series:
    """Which of these paths, missing for no range, have the range of this name."""
    return paths.isin([path for path in paths.dropna().unique() if name in names_in(path)])


def rows_in_parts(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table by `part`; none if all are outside the ranges of parts."""
    return rows if (rows["part"] != NO_RANGE).any() else rows.iloc[:0]


def parts_in(name: str) -> list[str]:
    """The parts of a set of parts."""
    return name.split(JOINT)


def _pass_and_part(phase: str, names: list[str], parts: set[str]) -> tuple[str, str]:
    """The part is the innermost range; in the backward pass the innermost that is also in the forward pass, since
    libraries open their own ranges there. A compiled kernel has a set of parts."""
    if phase != BACKWARD:
        return FORWARD, names[-1] if names else LOSS if phase == LOSS else NO_RANGE
    part = next((name for name in reversed(names) if parts.issuperset(parts_in(name))), NO_RANGE)
    return RECOMPUTATION if RECOMPUTATION in names else BACKWARD, part
