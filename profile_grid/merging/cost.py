"""The table of the time of every stage of every run by part, and a summary of it in words."""

import numpy as np
import pandas as pd

from cs336_model.program.process import STAGES as PARTS_OF_PROCESS
from profile_grid.quantities import counted
from profile_grid.results.load_runs import MeasuredRun
from profile_grid.study.dimensions import GPUS
from profile_grid.study.stages import STAGES
from profile_grid.study.table_spec import TableSpec, columns

PARTS = tuple(name for name in PARTS_OF_PROCESS if name != "wait")  # waiting for a lease is the column waited_s


def cost_table(runs: list[MeasuredRun]) -> pd.DataFrame:
    """One row per run and stage: the seconds of its process by part; `overhead_s` is all but warm-up, measured steps
    and windows of energy."""
    return pd.DataFrame([_row(run, name) for run in runs for name in run.results])


def cost_in_words(cost: pd.DataFrame, gpus: int) -> str:
    """One line: how long all measurements took, how much of that was overhead, and what `--cores all` would run in
    parallel on a host with this number of visible GPUs."""
    total_s, overhead_s = cost["total_s"].sum(), cost["overhead_s"].sum()
    mean_s = cost.groupby("stage")["overhead_s"].mean()
    per_stage = ", ".join(f"{mean_s[stage.name]:.1f} s per {stage.name}" for stage in STAGES if stage.name in mean_s)
    unleased_s = (cost["total_s"] - cost["leased_s"]).sum()
    parallel = ""
    if unleased_s >= 1:
        parallel = f"; {unleased_s:.0f} s of them leased no GPU: --cores all runs these in parallel"
        if gpus > 1:
            leased_s = (cost["leased_s"] * cost[GPUS.key]).sum()
            parallel += f", and measures on all {gpus} GPUs at once: {leased_s / gpus:.0f} s if no GPU waits"
    return (
        f"{counted(len(cost), 'measurement')} took {total_s:.0f} s, {overhead_s:.0f} s of them outside warm-up and"
        f" measured steps ({per_stage}){parallel}; every run is in cost.csv"
    )


def _row(run: MeasuredRun, stage_name: str) -> dict:
    result = run.results[stage_name]
    seconds = result.seconds
    seconds_by_part = result.program.cost_seconds if result.program else {}
    parts = {f"{name}_s": seconds_by_part.get(name, np.nan) for name in PARTS}
    export_s = seconds.get("export", 0.0)
    return run.leading | {
        "stage": stage_name,
        **parts,
        "export_s": export_s,
        "other_s": seconds["all"] - np.nansum(list(parts.values())) - export_s,
        "total_s": seconds["all"],
        "overhead_s": seconds["all"] - np.nansum([parts[name] for name in ("warmup_s", "measured_s", "energy_s")]),
        "leased_s": seconds["leased"],
        "waited_s": result.waited_s,
        "neighbours": result.neighbours,
    }


COST = TableSpec(
    "cost",
    "One row per run and process: its seconds by part",
    columns("""
    stage | text | | name of the stage
    import_s | float | s | importing torch and the model
    context_s | float | s | making the CUDA context, and on several GPUs NCCL's communicator
    initialise_s | float | s | making weights, optimizer state and data
    compile_s | float | s | first step of a compiled model, in which it is compiled with an empty cache
    warmup_s | float | s | warm-up steps
    measured_s | float | s | measured steps
    energy_s | float | s | windows in which energy was counted, including idle ones
    profiler_s | float | s | start and end of the profiler inside the program
    accuracy_s | float | s | one step, or attention alone, in fp64, after all times were measured
    export_s | float | s | exporting the report to SQLite
    other_s | float | s | interpreter, profiler outside the program, writing results
    total_s | float | s | the entire process, without waiting for a lease, the exclusive right to measure
    overhead_s | float | s | all but warm-up, measured steps and windows of energy
    leased_s | float | s | the part of the process with a lease of its GPUs or the host
    waited_s | float | s | waiting for that lease; in no other column
    neighbours | int | | maximum number of other GPUs of the host in use by measurements meanwhile
"""),
)
TABLES = (COST,)
