"""Conservation laws between a capture and its tables."""

import pandas as pd

from kernel_tables.errors import NotConserved
from profile_grid.tables import classes, names


def require_same(quantity: str, actual: int, expected: int) -> None:
    """Raises NotConserved unless the two integers are equal."""
    if int(actual) != int(expected):
        raise NotConserved(f"{quantity}: {int(actual)} in the table, {int(expected)} in the capture")


def check_conservation(kernels: pd.DataFrame, phases: pd.DataFrame) -> None:
    """Raises NotConserved unless kernels add up to their phase and phases to their step, to the nanosecond."""
    keys = ["run", "step", "phase"]
    memory = kernels["class"].isin(classes.MEMORY_OPERATIONS)
    listed = phases[phases["phase"] != names.WHOLE_STEP].set_index(keys)
    for column, rows in (("kernel_ns", kernels[~memory]), ("memop_ns", kernels[memory])):
        _require_equal(rows.groupby(keys, observed=True)["total_ns"].sum(), listed[column], f"{column} of the phase")
        steps = phases[phases["phase"] == names.WHOLE_STEP].set_index(["run", "step"])[column]
        _require_equal(listed[column].groupby(["run", "step"], observed=True).sum(), steps, f"{column} of the step")


def check_shares(table: pd.DataFrame, keys: list[str]) -> None:
    """Raises NotConserved unless the column `share` sums to one in each group of `keys`."""
    sums = table.groupby(keys)["share"].sum()
    if not sums.empty and (sums - 1).abs().max() > 1e-9:
        worst = (sums - 1).abs().idxmax()
        group = ", ".join(map(str, worst)) if isinstance(worst, tuple) else str(worst)
        raise NotConserved(f"{group}: the shares sum to {sums[worst]!r} instead of 1")


def _require_equal(sums: pd.Series, expected: pd.Series, quantity: str) -> None:
    both = pd.concat([sums.rename("found"), expected.rename("expected")], axis=1).fillna(0)
    wrong = both[both["found"] != both["expected"]]
    if not wrong.empty:
        group = ", ".join(str(part) for part in wrong.index[0])
        raise NotConserved(
            f"{group}: {quantity} is {int(wrong['expected'].iloc[0])} ns, its parts sum to"
            f" {int(wrong['found'].iloc[0])} ns;"
            " the tables come from different captures or a launch was lost: rebuild them from the capture"
        )
