"""What the summary tables are made of: the merged tables, and means over the measured steps.

Up to here, times are integer nanoseconds; results have their unit in the column's name. "GPU time" is the sum of the
durations of kernels and memory operations (on a CPU: of outermost operators). "Per pass" is the mean over the measured
steps; a step without the kernel counts as zero.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property

import pandas as pd

from profile_grid.study.dimensions import LEADING
from profile_grid.tables import evidence, names, texts

CATEGORICAL = ("kernels", "phases", "ranges")  # large tables, whose texts are categories


class Merged:
    """The merged tables by name, and values that several questions derive from them, each computed once."""

    def __init__(self, tables: Mapping[str, pd.DataFrame]) -> None:
        self.tables = tables

    def __getitem__(self, name: str) -> pd.DataFrame:
        """The table of this name; its texts are categories only if it is one of CATEGORICAL."""
        return self.tables[name] if name in CATEGORICAL else texts.as_texts(self.tables[name])

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """The kernels of measured steps, without those before and after the steps."""
        return self.tables["kernels"][self.tables["kernels"]["step"] >= 0]

    @cached_property
    def captured_steps(self) -> pd.Series:
        """The number of captured steps, by run."""
        phases = self.tables["phases"]
        return phases[phases["phase"] == names.WHOLE_STEP].groupby("run", sort=False, observed=True)["step"].nunique()

    @cached_property
    def device_busy_ms(self) -> pd.Series:
        """The mean time per captured step in which the GPU, or the CPU of a run without one, runs anything, by run."""
        phases = self.tables["phases"]
        steps = phases[phases["phase"] == names.WHOLE_STEP]
        return as_floats(steps["gpu_busy_ns"]).groupby(steps["run"].astype("str")).mean() / 1e6

    @cached_property
    def busy_ms(self) -> pd.Series:
        """The values of `device_busy_ms` of runs on a GPU."""
        runs = self.tables["runs"]
        return self.device_busy_ms[self.device_busy_ms.index.isin(runs.loc[runs["device"] != "cpu", "run"])]

    @cached_property
    def step_ms(self) -> pd.Series:
        """The mean time of a step without a profiler, by timed run."""
        timings = self["timings"]
        return as_floats(timings[timings["phase"] == names.WHOLE_STEP].set_index("run")["mean_ms"])

    @cached_property
    def waiting_share(self) -> pd.Series:
        """The share of a step without a profiler in which the GPU runs nothing, by timed run; NaN without a capture
        on a GPU."""
        return (1 - self.busy_ms.reindex(self.step_ms.index) / self.step_ms).clip(lower=0)

    @cached_property
    def process_spreads(self) -> pd.DataFrame:
        """`spread` between processes and `processes`, by run and phase (profile_grid/tables/evidence.py)."""
        timings = self["timings"]
        waiting_share = as_floats(timings["run"].map(self.waiting_share))
        processes, measured_spread = (as_floats(timings[name]) for name in names.PROCESS_STATISTICS)
        table = evidence.spreads(processes, measured_spread, waiting_share)
        return table.set_axis(pd.MultiIndex.from_frame(timings[["run", "phase"]]))

    def spreads_of(self, runs: pd.Series, phase: pd.Series | str) -> pd.DataFrame:
        """The rows of `process_spreads` of these runs and phases, with the index of the runs; NaN for others."""
        phases = phase if isinstance(phase, pd.Series) else [phase] * len(runs)
        keys = pd.MultiIndex.from_arrays([runs.astype("str"), phases], names=["run", "phase"])
        return self.process_spreads.reindex(keys).set_axis(runs.index)


def per_pass(rows: pd.DataFrame, by: list[str], step_counts: pd.Series) -> pd.DataFrame:
    """One row per run and value of `by`: total_ns over all steps, gpu_time_ms per step and its standard deviation,
    invocations per step, and whether each measured step had as many. `step_counts`: captured steps by run."""
    keys = ["run", *by]
    sums = rows.groupby([*keys, "step"], sort=False, observed=True)[["total_ns", "launches"]].sum()
    per_step = sums.reset_index()
    groups = per_step.groupby(keys, sort=False, observed=True)
    group_index = groups.ngroup()  # for each row of per_step, the position of its group in the table
    table = groups.agg(
        total_ns=("total_ns", "sum"), launches=("launches", "sum"), steps=("step", "size"),
        fewest=("launches", "min"), most=("launches", "max"),
    ).reset_index()  # fmt: skip
    table = with_leading_columns(texts.as_texts(table), texts.as_texts(rows[LEADING].drop_duplicates("run")))
    captured = as_floats(table["run"].map(step_counts))
    mean_ns = as_floats(table["total_ns"]) / captured
    deviation_ns = per_step["total_ns"] - mean_ns.to_numpy()[group_index]
    absent_steps = captured - table["steps"]  # in which nothing of the group ran: each deviates by the mean
    squares = (deviation_ns**2).groupby(group_index).sum().to_numpy() + absent_steps * mean_ns**2
    table["gpu_time_ms"] = mean_ns / 1e6
    table["gpu_time_std_ms"] = (squares / (captured - 1).where(captured > 1)) ** 0.5 / 1e6
    table["invocations"] = as_floats(table["launches"]) / captured
    table["same_in_every_step"] = (table["fewest"] == table["most"]) & (table["steps"] == captured)
    return table.drop(columns=["launches", "steps", "fewest", "most"])


def as_floats(column: pd.Series) -> pd.Series:
    """The column as float64, even if the table has no rows; NaN for what is no number."""
    return pd.to_numeric(column, errors="coerce").astype("float64")


def with_share(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The table with a column `share`: each row's share of total_ns in its group."""
    total = table.groupby(keys)["total_ns"].transform("sum")
    return table.assign(share=(table["total_ns"] / total.where(total > 0)).astype("float64"))


def total_by_run(rows: pd.DataFrame) -> pd.Series:
    """The sum of total_ns by run. The index is text, since categories of different tables do not align."""
    sums = rows.groupby("run", observed=True)["total_ns"].sum()
    return sums.set_axis(sums.index.astype("str"))


def largest_by_run(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """The row of each run with the largest value in this column, if there are several the first; runs are sorted by
    that value, the largest first."""
    return rows.sort_values(column, ascending=False, kind="stable").drop_duplicates("run")


def in_run_order(table: pd.DataFrame, kernels: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """The rows in the order of the runs in `kernels`, then by phase if there is one, then by the columns `by`; if these
    are empty, the longest time comes first."""
    phases = ["phase"] if "phase" in table.columns else []
    return in_order_of(table, kernels["run"].unique(), *phases, *(by or ["gpu_time_ms"]), largest_first="gpu_time_ms")


def in_order_of(table: pd.DataFrame, runs: Iterable[str], *by: str, largest_first: str | None = None) -> pd.DataFrame:
    """The rows in the order of these runs, then by these columns, of which `largest_first` descends; a stable sort."""
    position = {run: number for number, run in enumerate(dict.fromkeys(runs))}
    keys = table[[*by]].assign(_run=table["run"].astype("str").map(position))
    ascending = [True, *(name != largest_first for name in by)]
    ordered = keys.sort_values(["_run", *by], ascending=ascending, kind="stable")
    return table.loc[ordered.index].reset_index(drop=True)


def with_leading_columns(table: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The table with the columns LEADING (run and dimensions) first; their values are taken from `rows`."""
    return rows[LEADING].drop_duplicates("run").merge(table, on="run", how="right", validate="one_to_many")
