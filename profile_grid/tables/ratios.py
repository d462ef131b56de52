"""Speed-ups: ratios of the times of two runs that differ in one dimension only, with their spread and verdicts."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from profile_grid.study.dimensions import LEADING, Dimension, keys_without
from profile_grid.study.table_spec import PER_PASS, columns
from profile_grid.tables.evidence import error_of_ratio, ratio_verdicts
from profile_grid.tables.model_parts import innermost_parts
from profile_grid.tables.per_pass import Merged, in_order_of, numbers, per_pass, total_by_run, with_leading_columns


def with_base(
    rows: pd.DataFrame, dimension: Dimension, figure: str, spread: str, by: Sequence[str] = ()
) -> pd.DataFrame:
    """The rows that are not at the dimension's default, each with its base: the row at the default that agrees in all
    other dimensions and in `by`. Rows without a value in `figure`, or without a base, are left out.

    Adds base_run, base_`figure`, base_`spread`, and the columns of with_speed_up. Raises MergeError if a row has two
    bases.
    """
    measured = rows[rows[figure].notna()]
    is_base = measured[dimension.key] == dimension.default
    keys = [*keys_without(dimension.key), *by]
    base = measured.loc[is_base, ["run", *keys, figure, spread]]
    base = base.rename(columns={name: f"base_{name}" for name in ("run", figure, spread)})
    return with_speed_up(measured[~is_base].merge(base, on=keys, how="inner", validate="many_to_one"), figure, spread)


def with_speed_up(both: pd.DataFrame, figure: str, spread: str) -> pd.DataFrame:
    """The rows with speed_up, base_`figure` ÷ `figure`, and speed_up_std, from the standard deviations of both."""
    ratio, std = ratio_and_std(both[f"base_{figure}"], both[f"base_{spread}"], both[figure], both[spread])
    return both.assign(speed_up=ratio, speed_up_std=std)


def ratio_and_std(
    upper: pd.Series, upper_std: pd.Series, lower: pd.Series, lower_std: pd.Series
) -> tuple[pd.Series, pd.Series]:
    """(`upper` ÷ `lower`, its standard deviation), from independent standard deviations of both."""
    ratio = upper / lower
    return ratio, ratio * ((upper_std / upper) ** 2 + (lower_std / lower) ** 2) ** 0.5


def baseline_pairs(runs: pd.DataFrame, dimension: Dimension) -> pd.DataFrame:
    """One row per run that is not at the default and has a base: `run`, `base_run`. MergeError if it has two bases."""
    keys, is_base = keys_without(dimension.key), runs[dimension.key] == dimension.default
    base = runs.loc[is_base, ["run", *keys]].rename(columns={"run": "base_run"})
    both = runs.loc[~is_base, ["run", *keys]].merge(base, on=keys, how="inner", validate="many_to_one")
    return both[["run", "base_run"]]


def join_baseline(merged: Merged, dimension: Dimension, times: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """One row per run with a base, both in `times`, and per value of `by` that either has: the other columns of `times`
    of the run, and of its base as base_...; 0 for the one that lacks the value. In the order of the runs."""
    figures = [name for name in times.columns if name not in ("run", *by)]
    captured = merged["runs"][merged["runs"]["run"].isin(times["run"])]
    pairs = baseline_pairs(captured, dimension)
    variants = pairs.merge(times, on="run")
    bases = pairs.merge(times.rename(columns={name: f"base_{name}" for name in ("run", *figures)}), on="base_run")
    table = variants.merge(bases, on=["run", "base_run", *by], how="outer", sort=False)
    numeric = [*figures, *(f"base_{name}" for name in figures)]
    table = table.fillna(dict.fromkeys(numeric, 0.0)).astype(dict.fromkeys(numeric, "float64"))
    return with_leading_columns(in_order_of(table, captured["run"]), captured)


def with_counterparts(rows: pd.DataFrame, dimension: Dimension) -> pd.DataFrame:
    """The rows of runs, at the default or not, that differ from another run of the table in this dimension only."""
    values = rows.groupby(keys_without(dimension.key), sort=False)[dimension.key].transform("nunique")
    return rows[values > 1]


def times_with_base(merged: Merged, dimension: Dimension) -> pd.DataFrame:
    """One row per phase of each run that is not at the dimension's default and has a base: the time without a profiler
    of both, the speed-up, and its verdict, adjusted for all rows of the phase."""
    timings = merged["timings"][[*LEADING, "phase", "mean_ms", "std_ms"]]
    table = with_base(timings, dimension, "mean_ms", "std_ms", by=["phase"])
    variant, base = (merged.spreads_of(table[run], table["phase"]) for run in ("run", "base_run"))
    error, freedom = error_of_ratio(variant, base)
    indices = [rows.index for _, rows in table.groupby("phase", sort=False)] or [table.index]
    by_phase = [ratio_verdicts(table["speed_up"][index], error[index], freedom[index]) for index in indices]
    verdicts = pd.concat(by_phase).reindex(table.index)
    return table.assign(
        speed_up_low=verdicts["low"].astype("float64"), speed_up_high=verdicts["high"].astype("float64"),
        verdict=verdicts["verdict"].astype("object"), spread=(variant["spread"] ** 2 + base["spread"] ** 2) ** 0.5,
        processes=np.minimum(variant["processes"], base["processes"]),
    )  # fmt: skip


def parts_with_base(merged: Merged, dimension: Dimension) -> pd.DataFrame:
    """One row per phase and part that a run not at the dimension's default and its base both have: the GPU time of
    both, each with its share of the step's GPU time, and the speed-up."""
    kernels = merged.kernels
    kernels = kernels.assign(part=innermost_parts(kernels["range"]))
    times = per_pass(kernels, ["phase", "part"], merged.captured_steps)
    times["share"] = numbers(times["total_ns"]) / numbers(times["run"].map(total_by_run(kernels)))
    table = with_base(times, dimension, "gpu_time_ms", "gpu_time_std_ms", by=["phase", "part"])
    shares = times.set_index(["run", "phase", "part"])["share"]
    base_rows = pd.MultiIndex.from_frame(table[["base_run", "phase", "part"]])
    table["base_share"] = shares.reindex(base_rows).to_numpy(dtype="float64")
    return table.drop(columns=["total_ns", "same_in_every_step"])


TIME_OF_A_RUN = columns("""
    phase | text | | step, or one phase of it
    mean_ms | float | ms | mean time of this run
    std_ms | float | ms | its standard deviation (n − 1)
""")
BASE_RUN = columns("base_run | text | | the run at the default that differs in nothing else")
SPEED_UP = columns("""
    speed_up | float | | time of that run ÷ time of this one
    speed_up_std | float | | its standard deviation, from those of both
""")
TIME_OF_BASE = columns(
    BASE_RUN,
    """
    base_mean_ms | float | ms | mean time of the run at the default
    base_std_ms | float | ms | its standard deviation
""",
    SPEED_UP,
)
VERDICT = columns("""
    speed_up_low | float | | lower end of the 95 % interval of speed_up between processes
    speed_up_high | float | | its upper end
    verdict | text | | faster, slower or unclear, by the spread between processes, adjusted for all rows of the phase
    spread | float | | relative standard deviation of speed_up between single processes, assumed if processes is 1
    processes | float | | processes that timed this run or that run, the fewer of both
""")
TIMES_WITH_BASE = columns(TIME_OF_A_RUN, TIME_OF_BASE, VERDICT)
PARTS_WITH_BASE = columns(
    """
    phase | text | | range directly inside step
    part | text | | innermost range that was open at the launch
""",
    PER_PASS,
    "share | float | of 1 | of the GPU time of the step",
    BASE_RUN,
    """
    base_gpu_time_ms | float | ms | GPU time of the run at the default
    base_gpu_time_std_ms | float | ms | its standard deviation
""",
    SPEED_UP,
    "base_share | float | of 1 | of the GPU time of that run's step",
)
