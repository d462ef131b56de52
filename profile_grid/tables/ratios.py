"""Speed-ups: ratios of the times of two runs that differ in one dimension only, with their spread and verdicts.

The base of a run is its baseline: the run at the default of the dimension that agrees in all others.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from profile_grid.study.dimensions import LEADING, Dimension, keys_without
from profile_grid.study.table_spec import PER_PASS, columns
from profile_grid.tables.evidence import error_of_ratio, ratio_verdicts
from profile_grid.tables.model_parts import innermost_parts
from profile_grid.tables.per_pass import Merged, as_floats, in_order_of, per_pass, total_by_run, with_leading_columns


def with_base(rows: pd.DataFrame, dimension: Dimension, mean: str, std: str, by: Sequence[str] = ()) -> pd.DataFrame:
    """The rows that are not at the dimension's default, each with the row of its base that has the same values of `by`.
    Rows without a value in the column `mean`, or without a base, are left out. The column `std` has standard
    deviations.

    Adds base_run, base_`mean`, base_`std`, and the columns of with_speed_up. Raises MergeError if a row has two bases.
    """
    measured = rows[rows[mean].notna()]
    is_base = measured[dimension.key] == dimension.default
    keys = [*keys_without(dimension.key), *by]
    bases = measured.loc[is_base, ["run", *keys, mean, std]]
    bases = bases.rename(columns={name: f"base_{name}" for name in ("run", mean, std)})
    return with_speed_up(measured[~is_base].merge(bases, on=keys, how="inner", validate="many_to_one"), mean, std)


def with_speed_up(pairs: pd.DataFrame, mean: str, std: str) -> pd.DataFrame:
    """The rows with speed_up, base_`mean` ÷ `mean`, and speed_up_std, from the standard deviations of both."""
    speed_up, speed_up_std = ratio_and_std(pairs[f"base_{mean}"], pairs[f"base_{std}"], pairs[mean], pairs[std])
    return pairs.assign(speed_up=speed_up, speed_up_std=speed_up_std)


def ratio_and_std(
    upper: pd.Series, upper_std: pd.Series, lower: pd.Series, lower_std: pd.Series
) -> tuple[pd.Series, pd.Series]:
    """(`upper` ÷ `lower`, its standard deviation), if the errors of both are independent."""
    ratio = upper / lower
    return ratio, ratio * ((upper_std / upper) ** 2 + (lower_std / lower) ** 2) ** 0.5


def base_pairs(runs: pd.DataFrame, dimension: Dimension) -> pd.DataFrame:
    """One row per run that is not at the default and has a base: `run`, `base_run`. MergeError if it has two bases."""
    keys, is_base = keys_without(dimension.key), runs[dimension.key] == dimension.default
    bases = runs.loc[is_base, ["run", *keys]].rename(columns={"run": "base_run"})
    pairs = runs.loc[~is_base, ["run", *keys]].merge(bases, on=keys, how="inner", validate="many_to_one")
    return pairs[["run", "base_run"]]


def join_base(merged: Merged, dimension: Dimension, times: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """One row per run that is in `times` together with its base, and per value of `by` that either of them has, in the
    order of the runs. The other columns of `times` are those of the run; with the prefix base_, those of its base.
    Where one of the two lacks the value of `by`, its columns are 0."""
    time_columns = [name for name in times.columns if name not in ("run", *by)]
    base_names = {name: f"base_{name}" for name in ("run", *time_columns)}
    captured = merged["runs"][merged["runs"]["run"].isin(times["run"])]
    pairs = base_pairs(captured, dimension)
    variants = pairs.merge(times, on="run")
    bases = pairs.merge(times.rename(columns=base_names), on="base_run")
    table = variants.merge(bases, on=["run", "base_run", *by], how="outer", sort=False)
    both_times = [*time_columns, *(base_names[name] for name in time_columns)]
    table = table.fillna(dict.fromkeys(both_times, 0.0)).astype(dict.fromkeys(both_times, "float64"))
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
    variant, base = (merged.spreads_of(table[run_column], table["phase"]) for run_column in ("run", "base_run"))
    error, freedom = error_of_ratio(variant, base)
    # A table without rows has no phases, but the columns of verdicts, too.
    phase_indices = [rows.index for _, rows in table.groupby("phase", sort=False)] or [table.index]
    by_phase = [ratio_verdicts(table["speed_up"][index], error[index], freedom[index]) for index in phase_indices]
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
    times["share"] = as_floats(times["total_ns"]) / as_floats(times["run"].map(total_by_run(kernels)))
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
