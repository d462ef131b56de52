"""Checks that tables lose no launch and no nanosecond of a capture, and that shares add up."""

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
    is_memory = kernels["class"].isin(classes.MEMORY_OPERATIONS)
    is_step = phases["phase"] == names.WHOLE_STEP
    for column, rows in (("kernel_ns", kernels[~is_memory]), ("memop_ns", kernels[is_memory])):
        by_phase = phases[~is_step].set_index(keys)[column]
        by_step = phases[is_step].set_index(["run", "step"])[column]
        _require_sums(rows.groupby(keys, observed=True)["total_ns"].sum(), by_phase, f"{column} of the phase")
        _require_sums(by_phase.groupby(["run", "step"], observed=True).sum(), by_step, f"{column} of the step")


def check_shares(table: pd.DataFrame, keys: list[str]) -> None:
    """Raises NotConserved unless the column `share` sums to one in each group of `keys`."""
    sums = table.groupby(keys)["share"].sum()
    if not sums.empty and (sums - 1).abs().max() > 1e-9:
        worst = (sums - 1).abs().idxmax()
        group = ", ".join(map(str, worst)) if isinstance(worst, tuple) else str(worst)
        raise NotConserved(f"{group}: the shares sum to {sums[worst]!r} instead of 1")


def _require_sums(sums: pd.Series, totals: pd.Series, quantity: str) -> None:
    both = pd.concat([sums.rename("sum"), totals.rename("total")], axis=1).fillna(0)
    wrong = both[both["sum"] != both["total"]]
    if not wrong.empty:
        group, first = ", ".join(map(str, wrong.index[0])), wrong.iloc[0].astype("int64")
        raise NotConserved(
            f"{group}: {quantity} is {first['total']} ns, its parts sum to {first['sum']} ns;"
            " the tables come from different captures or a launch was lost: rebuild them from the capture"
        )
