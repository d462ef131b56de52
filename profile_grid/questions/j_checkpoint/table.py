"""The tables of (j): times compared with the times without checkpoints, and the memory of each run."""

import pandas as pd

from cs336_model.arithmetic import checkpoints
from cs336_model.arithmetic.flops import BACKWARD_IN_FORWARDS, forward_flops
from cs336_model.ranges import BACKWARD, FORWARD, PHASES_OF_MODE, RECOMPUTATION
from profile_grid.results.results import COMPLETE
from profile_grid.study import stages, table_spec
from profile_grid.study.dimensions import CHECKPOINT, LEADING, keys_without
from profile_grid.tables import names, ratios
from profile_grid.tables.ideal import shape_of_run
from profile_grid.tables.model_parts import has_range
from profile_grid.tables.per_pass import Merged, as_floats, total_by_run

PEAK_COLUMNS = ("peak_allocated_bytes", "recorded_peak_bytes")  # of the timed process; of the process of stage memory
BYTE_COLUMNS = [*PEAK_COLUMNS, "recorded_kept_bytes"]


def first_known_column(rows: pd.DataFrame) -> str:
    """The first of the columns of peaks in which any run has a value; the last if none has."""
    return next((column for column in PEAK_COLUMNS if rows[column].notna().any()), PEAK_COLUMNS[-1])


def checkpoint_times(merged: Merged) -> pd.DataFrame:
    """(j) One row per checkpointed run and phase: its time, the time of the same run without checkpoints, and the
    speed-up (at most one) that the FLOPs of recomputation explain."""
    table = ratios.times_with_base(merged, CHECKPOINT)
    runs = merged["runs"].set_index("run")
    run_phases = zip(table["run"], table["phase"], strict=True)
    ideal = [_ideal_ratio(runs.loc[run], phase) for run, phase in run_phases]
    return table.assign(ideal_by_flops=pd.Series(ideal, index=table.index, dtype="float64"))


def checkpoint_memory(merged: Merged) -> pd.DataFrame:
    """(j) One row per run with a backward pass that has a counterpart with other checkpoints: its memory, the memory of
    the same run without checkpoints, and the share of its GPU time that recomputes."""
    runs = ratios.with_counterparts(merged["runs"], CHECKPOINT)
    runs = runs[runs["mode"].isin([mode for mode, phases in PHASES_OF_MODE.items() if BACKWARD in phases])]
    steps = merged["timings"][merged["timings"]["phase"] == names.WHOLE_STEP].set_index("run")
    is_complete = runs[stages.TIMING.status_column] == COMPLETE  # otherwise the peak is of what ran until it failed
    table = runs[LEADING].assign(
        status=runs[stages.TIMING.status_column],
        **{name: as_floats(runs["run"].map(steps[name])) for name in ("mean_ms", "std_ms")},
        peak_allocated_bytes=as_floats(runs["peak_allocated_bytes"]).where(is_complete),
        recorded_peak_bytes=as_floats(
            runs["run"].map(merged["memory_totals"].set_index("run")["requested_peak_bytes"])
        ),
        recorded_kept_bytes=as_floats(runs["run"].map(merged["memory_activations"].groupby("run")["bytes"].sum())),
        recomputed_share=as_floats(runs["run"].map(_recomputed_share(merged))),
    )
    keys = keys_without(CHECKPOINT.key)
    base = table.loc[table[CHECKPOINT.key] == CHECKPOINT.default, [*keys, *BYTE_COLUMNS]]
    base = base.rename(columns={name: f"base_{name}" for name in BYTE_COLUMNS})
    return table.merge(base, on=keys, how="left", validate="many_to_one").reset_index(drop=True)


def _recomputed_share(merged: Merged) -> pd.Series:
    """By run, the share of a step's GPU time inside the range of recomputation."""
    kernels = merged.kernels
    is_recomputed = has_range(kernels["range"], RECOMPUTATION)
    total = total_by_run(kernels)
    return total_by_run(kernels[is_recomputed]).reindex(total.index, fill_value=0) / total


def _ideal_ratio(run: pd.Series, phase: str) -> float | None:
    """FLOPs of the matrix products of a phase, without ÷ with recomputation; None for other people's models."""
    shape = shape_of_run(run)
    if shape is None:
        return None
    forward_passes = {BACKWARD: BACKWARD_IN_FORWARDS, names.WHOLE_STEP: 1 + BACKWARD_IN_FORWARDS}  # with as many FLOPs
    if phase not in forward_passes:  # nothing is recomputed in it
        return 1.0
    without_recomputation = forward_flops(shape)[FORWARD] * forward_passes[phase]
    recomputation = sum(checkpoints.recomputed_flops(shape, run[CHECKPOINT.key]).values())
    return without_recomputation / (without_recomputation + recomputation)


TABLES = (
    table_spec.TableSpec(
        "checkpoint_times",
        "(j) One row per checkpointed run and phase, from the processes without a profiler",
        table_spec.columns(
            ratios.TIMES_WITH_BASE,
            "ideal_by_flops | float | | FLOPs of the phase without ÷ with recomputation, from the shapes; \
        empty if unknown",
        ),
        make=checkpoint_times,
    ),
    table_spec.TableSpec(
        "checkpoint_memory",
        "(j) One row per training run that another differs from only in checkpoints",
        table_spec.columns("""
    status | text | | as timing_status of runs
    mean_ms | float | ms | mean time of a step without a profiler
    std_ms | float | ms | its standard deviation (n − 1)
    peak_allocated_bytes | float | B | peak memory of tensors; empty on a CPU, and if the run is not complete
    recorded_peak_bytes | float | B | most that was requested at once, by the stage memory; empty without that stage
    recorded_kept_bytes | float | B | activations that it found kept for the backward pass
    recomputed_share | float | of 1 | part of the GPU time of a step that is inside the range of recomputation
    base_peak_allocated_bytes | float | B | peak memory of the run without checkpoints that differs in nothing else
    base_recorded_peak_bytes | float | B | recorded_peak_bytes of that run
    base_recorded_kept_bytes | float | B | recorded_kept_bytes of that run
"""),
        make=checkpoint_memory,
    ),
)
PAGE_TABLES = (
    table_spec.PageTable("checkpoint_times", "Times, compared with no checkpoints"),
    table_spec.PageTable("checkpoint_memory", "Memory and recomputation"),
)
