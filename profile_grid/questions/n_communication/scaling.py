"""How a step scales with the number of GPUs: the same batch for all of them, or as much for each."""

from __future__ import annotations

import pandas as pd

from profile_grid.study.dimensions import BATCH_SIZE, GPUS, LEADING, OPTIMIZER, PARALLEL, keys_without
from profile_grid.study.table_spec import TableSpec, columns
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.per_pass import Merged, numbers

STRONG, WEAK = "strong", "weak"
FIGURES = ["mean_ms", "std_ms"]


def communication_scaling(merged: Merged) -> pd.DataFrame:
    """(n) One row per run on several GPUs and kind of scaling: compared with the run on one GPU with the same batch
    (strong), or with as much per GPU (weak); no row without such a run."""
    times = merged["timings"]
    steps = times[(times["phase"] == WHOLE_STEP) & times["mean_ms"].notna()][[*LEADING, *FIGURES]]
    steps = steps.assign(**{name: numbers(steps[name]) for name in FIGURES})
    table = pd.concat([_scaled(steps, kind) for kind in (STRONG, WEAK)], ignore_index=True)
    spreads = merged.spreads_of(table["run"], WHOLE_STEP)
    return table.assign(process_spread=spreads["spread"], processes=spreads["processes"])


def _scaled(steps: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Efficiency 1 is n times as fast with the same batch, and as fast with n times the batch."""
    several = steps[GPUS.key] > 1
    keys = keys_without(GPUS.key, PARALLEL.key, OPTIMIZER.key, BATCH_SIZE.key)
    base = steps.loc[~several, ["run", *keys, BATCH_SIZE.key, *FIGURES]]
    base = base.rename(columns={name: f"base_{name}" for name in ("run", *FIGURES)} | {BATCH_SIZE.key: "_batch"})
    scaled = steps[several].assign(kind=kind)
    shared = scaled[GPUS.key] if kind == WEAK else 1
    scaled["_batch"] = scaled[BATCH_SIZE.key] / shared
    both = scaled.merge(base.astype({"_batch": scaled["_batch"].dtype}), on=[*keys, "_batch"], validate="many_to_one")
    speed_up = both["base_mean_ms"] / both["mean_ms"] * (both[GPUS.key] if kind == WEAK else 1)
    relative = (both["std_ms"] / both["mean_ms"]) ** 2 + (both["base_std_ms"] / both["base_mean_ms"]) ** 2
    efficiency = speed_up / both[GPUS.key]
    return both.drop(columns="_batch").assign(
        speed_up=speed_up, efficiency=efficiency, efficiency_std=efficiency * relative**0.5
    )


COMMUNICATION_SCALING = TableSpec(
    "communication_scaling",
    "(n) One row per run on several GPUs and kind of scaling, beside the run on one GPU",
    columns(f"""
    mean_ms | float | ms | mean time of a step, at every step that of the slowest rank
    std_ms | float | ms | its standard deviation (n − 1)
    kind | text | | {STRONG}: one GPU has the whole batch; {WEAK}: one GPU has as much as each of the several
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
