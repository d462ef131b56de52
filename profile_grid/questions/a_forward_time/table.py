"""The table of (a): the forward pass as NVTX and the GPU see it, its step by Python's timer, and what profiling
costs."""

import pandas as pd

from profile_grid.merging.run_overview import RUNS
from profile_grid.study.dimensions import LEADING
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables.names import FORWARD, WHOLE_STEP
from profile_grid.tables.per_pass import Merged, as_floats
from profile_grid.tables.ratios import ratio_and_std

MATCH_TOLERANCE = 0.05  # two times match if their ratio differs from one by at most this


def forward_time(merged: Merged) -> pd.DataFrame:
    """(a) One row per run: the forward pass as NVTX and the GPU see it, its step by Python's timer, and the cost of the
    profiler."""
    forward, step = _phase_statistics(merged["phases"], FORWARD), _phase_statistics(merged["phases"], WHOLE_STEP)
    timings = merged["timings"]
    unprofiled_step = timings[timings["phase"] == WHOLE_STEP].set_index("run")
    table = merged["runs"][[*LEADING, "timing_status", "capture_status", "backend"]].copy()

    def of_runs(statistic_by_run: pd.Series) -> pd.Series:
        return as_floats(table["run"].map(statistic_by_run))

    for time in ("wall", "gpu_span", "gpu_busy"):
        table[f"forward_{time}_ms"] = of_runs(forward[f"{time}_ms"])
        table[f"forward_{time}_std_ms"] = of_runs(forward[f"{time}_std_ms"])
    table["step_wall_ms"], table["step_wall_std_ms"] = of_runs(step["wall_ms"]), of_runs(step["wall_std_ms"])
    table["unprofiled_step_ms"] = of_runs(unprofiled_step["mean_ms"])
    table["unprofiled_step_std_ms"] = of_runs(unprofiled_step["std_ms"])
    table["steps_timed"], table["steps_captured"] = of_runs(unprofiled_step["n"]), of_runs(step["steps"])
    table["forward_kernels"] = of_runs(forward["kernels"])
    table["mean_kernel_us"] = of_runs(forward["kernel_ms"]) * 1e3 / table["forward_kernels"]
    table["idle_share"] = 1 - of_runs(step["gpu_busy_ms"]) / table["step_wall_ms"]
    spreads = merged.spreads_of(table["run"], WHOLE_STEP)
    return _with_overhead(table.assign(process_spread=spreads["spread"], processes=spreads["processes"]))


def _phase_statistics(phases: pd.DataFrame, phase: str) -> pd.DataFrame:
    """One row per run: mean and standard deviation of each time of a phase in ms, mean `kernels`, number of `steps`.
    Times on the GPU and `kernels` are NaN for a run without any kernel."""
    rows_of_phase = phases[phases["phase"] == phase]
    runs = rows_of_phase["run"]
    runs_with_kernels = phases.loc[phases["kernels"] > 0, "run"]  # in any phase: then zero kernels of this one are real
    times = ("gpu_span", "gpu_busy", "kernel", "wall")
    values = pd.DataFrame({f"{time}_ms": as_floats(rows_of_phase[f"{time}_ns"]) / 1e6 for time in times})
    values["kernels"] = as_floats(rows_of_phase["kernels"])
    values.loc[~runs.isin(runs_with_kernels), values.columns != "wall_ms"] = float("nan")
    by_run = values.groupby(runs, observed=True)
    deviations = by_run.std().drop(columns="kernels").rename(columns=lambda name: name.replace("_ms", "_std_ms"))
    steps = rows_of_phase.groupby("run", observed=True)["step"].nunique()
    return by_run.mean().join(deviations).assign(steps=steps)


def _with_overhead(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the ratio of the profiled to the unprofiled step, the ratio's standard deviation, and whether the
    two times match."""
    names = ("step_wall_ms", "step_wall_std_ms", "unprofiled_step_ms", "unprofiled_step_std_ms")
    ratio, std = ratio_and_std(*(table[name] for name in names))
    matches = ((ratio - 1).abs() <= MATCH_TOLERANCE).astype("boolean").mask(ratio.isna())
    return table.assign(overhead_ratio=ratio, overhead_ratio_std=std, matches_python=matches)


TABLES = (
    TableSpec(
        "forward_time",
        "(a) One row per run: its forward pass, and its step with and without the profiler",
        columns(
            RUNS.as_in("timing_status", "capture_status", "backend"),
            """
    forward_wall_ms | float | ms | wall time of the NVTX range forward, mean over the measured steps
    forward_wall_std_ms | float | ms | its standard deviation (n − 1)
    forward_gpu_span_ms | float | ms | first kernel of the forward pass to the end of its last
    forward_gpu_span_std_ms | float | ms | its standard deviation
    forward_gpu_busy_ms | float | ms | time in which at least one kernel of the forward pass ran
    forward_gpu_busy_std_ms | float | ms | its standard deviation
    step_wall_ms | float | ms | wall time of the NVTX range step under the profiler, including the wait for the device
    step_wall_std_ms | float | ms | its standard deviation
    unprofiled_step_ms | float | ms | the same step timed by Python without a profiler
    unprofiled_step_std_ms | float | ms | its standard deviation
    steps_timed | float | | measured steps of the timing
    steps_captured | float | | measured steps in the capture
    forward_kernels | float | | kernels in one forward pass
    mean_kernel_us | float | µs | mean duration of a kernel of the forward pass
    idle_share | float | of 1 | share of the profiled step in which the GPU did nothing
    process_spread | float | | relative standard deviation of unprofiled_step_ms between processes, assumed of one
    processes | float | | processes that timed the step without a profiler
    overhead_ratio | float | | step_wall_ms ÷ unprofiled_step_ms
    overhead_ratio_std | float | | its standard deviation, from those of both
    matches_python | bool | | whether overhead_ratio is within 5 % of one
""",
        ),
        make=forward_time,
    ),
)
PAGE_TABLES = (
    PageTable("forward_time", "The forward pass, profiled and not", columns=(
        "timing_status", "capture_status", "unprofiled_step_ms", "unprofiled_step_std_ms", "step_wall_ms",
        "step_wall_std_ms", "overhead_ratio", "matches_python", "forward_wall_ms", "forward_gpu_span_ms",
        "forward_gpu_busy_ms", "forward_kernels", "mean_kernel_us", "idle_share",
    )),
    PageTable("timings", "Every phase without a profiler"),
)  # fmt: skip
