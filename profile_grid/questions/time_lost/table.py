"""The tables of the diagnosis: findings of every run; predicted and measured gains of remedies."""

from dataclasses import dataclass

import pandas as pd

from cs336_model.arithmetic.memory import FUSED_ATTENTIONS
from profile_grid.study.dimensions import ATTENTION, BATCH_SIZE, COMPILE, GPUS, LEADING, PRECISION, Dimension
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables import largest_gains, names, ratios
from profile_grid.tables.findings import GAIN_COLUMNS, WORDING_COLUMNS
from profile_grid.tables.per_pass import Merged, as_floats

LAUNCH_RULES = ("launch_bound", "small_kernels")


@dataclass(frozen=True)
class Remedy:
    """A run with one of these values of the dimension should not have the findings of the rules with these codes."""

    dimension: Dimension
    values: tuple | None  # None: all but the default
    codes: tuple[str, ...]
    halves_the_rest: bool = False  # numbers of half the size at best halve the time of the remaining work, too


REMEDIES = (
    Remedy(PRECISION, ("tf32",), ("no_tensor_cores",)),
    Remedy(PRECISION, ("bf16", "bf16-weights"), ("no_tensor_cores",), halves_the_rest=True),
    Remedy(COMPILE, ("on",), (*LAUNCH_RULES, "unfused_elementwise", "unfused_attention", "casts")),
    Remedy(COMPILE, ("attention",), (*LAUNCH_RULES, "unfused_attention")),
    Remedy(ATTENTION, FUSED_ATTENTIONS, (*LAUNCH_RULES, "unfused_attention")),
    Remedy(BATCH_SIZE, None, (*LAUNCH_RULES, "unfused_optimizer", "idle_host", "idle_sync")),
)


def predictions(merged: Merged) -> pd.DataFrame:
    """One row per run that is a remedy for another run, its base: the most that the remedy can gain by the diagnosis of
    the base, and what it gains as measured. Both are in percent of a step of the base, or for a larger batch, of its
    time per sequence. If the base has no finding, the bound is zero, for bf16 half of the step."""
    findings = largest_gains.with_unprofiled_gains(merged["findings"], merged)
    tables = [_remedy_rows(remedy, merged, findings) for remedy in REMEDIES]
    return pd.concat([table for table in tables if len(table)] or tables[:1], ignore_index=True)  # at least the columns


def _remedy_rows(remedy: Remedy, merged: Merged, findings: pd.DataFrame) -> pd.DataFrame:
    """The rows of `predictions` for one remedy, from the findings of all runs with their unprofiled gains."""
    times = _times_of_remedy(remedy, merged)
    times = times[times["base_run"].isin(findings["run"])]  # only bases with a diagnosis
    measured = 100 * (1 - 1 / times["speed_up"] / times["batch_ratio"])
    # by the lower end of the speed-up's confidence interval; NaN if that is unknown
    least_measured = 100 * (1 - 1 / times["speed_up_low"] / times["batch_ratio"])
    matching = findings[findings["code"].isin(remedy.codes) & ~findings["abstained"].astype(bool)].groupby("run")
    codes_by_run = {run: ", ".join(codes) for run, codes in matching["code"]}
    found_percent = matching["unprofiled_percent"].sum().clip(upper=100)
    bound = as_floats(times["base_run"].map(found_percent)).fillna(0.0)
    if remedy.halves_the_rest:
        bound += (100 - bound) / 2
    table = times[[*LEADING, "base_run"]].assign(
        remedy=remedy.dimension.key,
        codes=[codes_by_run.get(run, "") for run in times["base_run"]],
        predicted_percent=bound,
        predicted_ms=times["base_mean_ms"] * bound / 100,
        measured_percent=measured,
        measured_ms=times["base_mean_ms"] * measured / 100,
        holds=((measured <= bound) | (least_measured <= bound)).astype("boolean"),
    )
    return table.astype({"codes": "str", "remedy": "str"})


def _times_of_remedy(remedy: Remedy, merged: Merged) -> pd.DataFrame:
    """The rows of `times_with_base` on entire steps of the runs with the remedy. A column `batch_ratio` is added: the
    batch of the run ÷ the default.

    A smaller batch is no remedy. Neither is a larger one on several GPUs: it also divides the communication by more
    sequences, which is scaling (question n).
    """
    times = ratios.times_with_base(merged, remedy.dimension)
    times = times[times["phase"] == names.WHOLE_STEP].assign(batch_ratio=1.0)
    if remedy.values is not None:
        times = times[times[remedy.dimension.key].isin(remedy.values)]
    if remedy.dimension is BATCH_SIZE:
        times = times.assign(batch_ratio=times[BATCH_SIZE.key].astype("float64") / BATCH_SIZE.default)
        times = times[(times["batch_ratio"] > 1) & (times[GPUS.key].astype("int64") == 1)]
    return times


TIME_LOST_COLUMNS = [
    "code", "abstained", "gain_ms", "gain_percent", "unprofiled_ms", "unprofiled_percent", "sure", "message", "advice",
]  # fmt: skip


def time_lost(merged: Merged) -> pd.DataFrame:
    """One row per run and rule that has a finding or lacks data; in each run, the largest gain first."""
    return largest_gains.largest_first(merged)[[*LEADING, *TIME_LOST_COLUMNS]]


UNPROFILED_COLUMNS = columns("""
    unprofiled_ms | float | ms | at most gained in a step without a profiler, where the GPU idles less; empty if none \
        was timed
    unprofiled_percent | float | % | the same, of that step
""")
TABLES = (
    TableSpec(
        "time_lost",
        "One row per run and rule of the diagnosis that has a finding or lacks data",
        columns("code | text | | the rule", GAIN_COLUMNS, UNPROFILED_COLUMNS, WORDING_COLUMNS),
        make=time_lost,
    ),
    TableSpec(
        "predictions",
        "One row per run that is a remedy for what the diagnosis finds in the run at the default",
        columns("""
    base_run | text | | the run at the default that differs in nothing else
    remedy | text | | the dimension in which they differ
    codes | text | | the rules whose findings in that run the remedy addresses; empty if there are none
    predicted_percent | float | % | upper bound of the gain by these findings, in % of the step of base_run; for a \
        larger batch, of its time per sequence
    predicted_ms | float | ms | the same share of the step of base_run without a profiler
    measured_percent | float | % | gain of the remedy without a profiler, as predicted_percent; negative if the time \
        grew
    measured_ms | float | ms | the same share of the step of base_run without a profiler
    holds | bool | | whether measured_percent, or the lower end of its interval between processes, is at most \
        predicted_percent
"""),
        make=predictions,
    ),
)
PAGE_TABLES = (
    PageTable("time_lost", "Where time is lost", select=lambda found: found[~found["abstained"].astype(bool)]),
    PageTable("predictions", "Predicted and measured gains of remedies"),
)
