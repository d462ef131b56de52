"""Whether several GPUs compute the same as one: the losses of every step compared with the run on one GPU."""

import pandas as pd

from profile_grid.stages.timing.tables import explained_error
from profile_grid.study.dimensions import GPUS, LEADING, OPTIMIZER, PARALLEL, PRECISION, keys_without
from profile_grid.study.table_spec import TableSpec, columns
from profile_grid.tables.per_pass import Merged, numbers


def communication_losses(merged: Merged) -> pd.DataFrame:
    """(n) One row per run on several GPUs: the difference of its losses from the run on one GPU with the same batch,
    and whether the precision explains it; NaN without such a run.

    The precision explains the error of one step, and as much again for every step before, since each sums in another
    order. If training is unstable, rounding errors grow faster; so `agreeing` counts the losses before the first that
    differs. The second loss is the first after a reduced gradient.
    """
    losses = merged["losses"].assign(loss=numbers(merged["losses"]["loss"]))
    several = numbers(losses[GPUS.key]) > 1
    keys = [*keys_without(GPUS.key, PARALLEL.key, OPTIMIZER.key), "number"]
    base = losses.loc[~several, ["run", *keys, "loss"]].rename(columns={"run": "base_run", "loss": "base_loss"})
    both = losses[several].merge(base, on=keys, how="left", validate="many_to_one")
    off = (both["loss"] - both["base_loss"]).abs() / both["base_loss"].abs()
    of_step = pd.Series([explained_error(name) for name in both[PRECISION.key]], index=both.index, dtype="float64")
    explained = of_step * (numbers(both["number"]) + 1)
    compared = both.assign(off=off, explained=explained, known=off.notna(), within=off <= explained)
    rows = [_verdict(run_losses.sort_values("number")) for _, run_losses in compared.groupby("run", sort=False)]
    return COMMUNICATION_LOSSES.table(rows)


BEHIND_A_REDUCTION = 2  # so many losses have to agree, or the gradients are not those of one GPU


def _verdict(run_losses: pd.DataFrame) -> dict:
    """The row of a run, from all its losses."""
    first, is_known = run_losses.iloc[0], run_losses["known"].any()
    return first[LEADING].to_dict() | {
        "base_run": first["base_run"], "losses": int(run_losses["known"].sum()),
        "agreeing": int(run_losses.loc[run_losses["known"], "within"].cummin().sum()), "first_off": first["off"],
        "largest_off": run_losses["off"].max(), "explained": first["explained"],
        "within_precision": bool(run_losses.loc[run_losses["known"], "within"].all()) if is_known else None,
    }  # fmt: skip


COMMUNICATION_LOSSES = TableSpec(
    "communication_losses",
    "(n) One row per run on several GPUs: its losses beside those of the run on one GPU with the same batch",
    columns("""
    base_run | text | | the run on one GPU with the same batch, which differs in nothing else; empty where there is none
    losses | int | | losses that both have, one for each step
    agreeing | int | | losses from the first on that differ by no more than the precision explains, until one does
    first_off | float | | relative difference of the first, before any gradient was reduced
    largest_off | float | | the largest relative difference
    explained | float | | what the precision explains of the first; of the k-th k times as much
    within_precision | bool | | whether every difference is within that
"""),
    make=communication_losses,
)
