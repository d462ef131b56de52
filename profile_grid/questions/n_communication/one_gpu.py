"""Runs on several GPUs compared with one: how a step scales, and whether the losses of every step are the same."""

import pandas as pd

from profile_grid.stages.timing.tables import explained_error
from profile_grid.study.dimensions import BATCH_SIZE, GPUS, LEADING, PARALLEL, PRECISION, keys_without
from profile_grid.study.table_spec import TableSpec, columns
from profile_grid.tables import names, per_pass

STRONG, WEAK = "strong", "weak"
TIME_COLUMNS = ["mean_ms", "std_ms"]


def communication_scaling(merged: per_pass.Merged) -> pd.DataFrame:
    """(n) One row per run on several GPUs and kind of scaling, compared with a run on one GPU. Its batch is the same
    (strong), or as large as the part of each GPU (weak). No row if there is no such run."""
    times = merged["timings"]
    steps = times[(times["phase"] == names.WHOLE_STEP) & times["mean_ms"].notna()][[*LEADING, *TIME_COLUMNS]]
    steps = steps.assign(**{name: per_pass.as_floats(steps[name]) for name in TIME_COLUMNS})
    table = pd.concat([_scaled(steps, kind) for kind in (STRONG, WEAK)], ignore_index=True)
    spreads = merged.spreads_of(table["run"], names.WHOLE_STEP)
    return table.assign(process_spread=spreads["spread"], processes=spreads["processes"])


def _scaled(steps: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The steps on several GPUs, each with its counterpart on one GPU; without a counterpart, it has no row. An
    efficiency of 1 is n times as fast with the same batch (strong), or as fast with n times the batch (weak)."""
    is_several = steps[GPUS.key] > 1
    keys = [*keys_without(GPUS.key, PARALLEL.key, BATCH_SIZE.key), "_batch_on_one_gpu"]
    steps = steps.assign(_batch_on_one_gpu=steps[BATCH_SIZE.key] / (steps[GPUS.key] if kind == WEAK else 1))
    base = steps.loc[~is_several, ["run", *keys, *TIME_COLUMNS]]
    base = base.rename(columns={name: f"base_{name}" for name in ("run", *TIME_COLUMNS)})
    pairs = steps[is_several].assign(kind=kind).merge(base, on=keys, validate="many_to_one")
    speed_up = pairs["base_mean_ms"] / pairs["mean_ms"] * (pairs[GPUS.key] if kind == WEAK else 1)
    efficiency = speed_up / pairs[GPUS.key]
    variance = (pairs["std_ms"] / pairs["mean_ms"]) ** 2 + (pairs["base_std_ms"] / pairs["base_mean_ms"]) ** 2
    return pairs.drop(columns="_batch_on_one_gpu").assign(
        speed_up=speed_up, efficiency=efficiency, efficiency_std=efficiency * variance**0.5
    )


COMMUNICATION_SCALING = TableSpec(
    "communication_scaling",
    "(n) One row per run on several GPUs and kind of scaling, compared with the run on one GPU",
    columns(f"""
    mean_ms | float | ms | mean time of a step, at every step that of the slowest rank
    std_ms | float | ms | its standard deviation (n − 1)
    kind | text | | {STRONG}: one GPU has the entire batch; {WEAK}: one GPU has as much as each of the several
    base_run | text | | that run on one GPU, which differs in nothing else
    base_mean_ms | float | ms | mean time of its step
    base_std_ms | float | ms | its standard deviation
    speed_up | float | | sequences per second ÷ those of the run on one GPU
    efficiency | float | of 1 | that ÷ number of GPUs: T1 ÷ (n Tn) for {STRONG}, T1 ÷ Tn for {WEAK}
    efficiency_std | float | of 1 | its standard deviation, from those of both
    process_spread | float | | relative standard deviation of times between processes, assumed of one process
    processes | float | | processes that timed this run
"""),
    make=communication_scaling,
)


def communication_losses(merged: per_pass.Merged) -> pd.DataFrame:
    """(n) One row per run on several GPUs: how its losses differ from those of the run on one GPU with the same batch,
    and whether the precision explains that; NaN without such a run.

    Each step sums in another order than on one GPU, so the precision explains k times the error of one step for the
    k-th loss. If training is unstable, rounding errors grow faster; so `agreeing` counts the losses before the first
    that differs by more.
    """
    losses = merged["losses"].assign(loss=per_pass.as_floats(merged["losses"]["loss"]))
    is_several = per_pass.as_floats(losses[GPUS.key]) > 1
    keys = [*keys_without(GPUS.key, PARALLEL.key), "number"]
    base = losses.loc[~is_several, ["run", *keys, "loss"]].rename(columns={"run": "base_run", "loss": "base_loss"})
    pairs = losses[is_several].merge(base, on=keys, how="left", validate="many_to_one")
    off = (pairs["loss"] - pairs["base_loss"]).abs() / pairs["base_loss"].abs()
    step_error = pd.Series([explained_error(name) for name in pairs[PRECISION.key]], index=pairs.index, dtype="float64")
    explained = step_error * (per_pass.as_floats(pairs["number"]) + 1)
    pairs = pairs.assign(off=off, explained=explained, agrees=off <= explained)
    rows = [_run_row(run_losses.sort_values("number")) for _, run_losses in pairs.groupby("run", sort=False)]
    return COMMUNICATION_LOSSES.table(rows)


# With fewer, losses differ from the start: the second one is the first after a reduced gradient was applied.
MIN_AGREEING_LOSSES = 2


def _run_row(run_losses: pd.DataFrame) -> dict:
    """The row of a run, from all its losses in order. Their differences from one GPU are in the column `off`, NaN for a
    loss that one GPU does not have."""
    first, agrees = run_losses.iloc[0], run_losses.loc[run_losses["off"].notna(), "agrees"]
    agreeing = int(agrees.cummin().sum())  # before the first False
    return first[LEADING].to_dict() | {
        "base_run": first["base_run"], "losses": len(agrees), "agreeing": agreeing,
        "first_off": first["off"], "largest_off": run_losses["off"].max(), "explained": first["explained"],
        "within_precision": bool(agrees.all()) if len(agrees) else None,
    }  # fmt: skip


COMMUNICATION_LOSSES = TableSpec(
    "communication_losses",
    "(n) One row per run on several GPUs: its losses and those of the run on one GPU with the same batch",
    columns("""
    base_run | text | | the run on one GPU with the same batch, which differs in nothing else; empty if there is none
    losses | int | | losses that both have, one for each step
    agreeing | int | | losses before the first that differs by more than the precision explains
    first_off | float | | relative difference of the first, before any gradient was reduced
    largest_off | float | | the largest relative difference
    explained | float | | the difference of the first that the precision explains; for the k-th, k times as much
    within_precision | bool | | whether every difference is within that
"""),
    make=communication_losses,
)
