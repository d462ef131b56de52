"""The tables of the diagnosis: findings of every run, predicted and measured gains of remedies, and host time."""

import pandas as pd

from kernel_tables.diagnosis.rules import OF_COUNTERS
from profile_grid.questions.time_lost.predictions import at_most, bounded, predictions
from profile_grid.results.results import COMPLETE
from profile_grid.stages.host_trace.tables import STACK
from profile_grid.study.dimensions import LEADING
from profile_grid.study.stages import COUNTERS
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables.findings import GAIN_OF_A_FINDING, WORDS_OF_A_FINDING
from profile_grid.tables.names import MAIN_PHASES
from profile_grid.tables.per_pass import Merged, in_order_of


def host_per_launch(merged: Merged) -> pd.DataFrame:
    """One row per run with a host trace, launching phase, and activity of its launching thread."""
    rows = _of_launching_threads(merged)
    rows = rows[rows["doing"] != STACK]
    keys = [*LEADING, "phase", "thread", "doing", "launches"]
    table = rows.groupby(keys, sort=False, as_index=False)[["calls", "own_ms"]].sum()
    return table.assign(us_per_launch=table["own_ms"] * 1e3 / table["launches"])


def host_stacks(merged: Merged) -> pd.DataFrame:
    """One row per run with a host trace and function whose Python code its launching threads ran outside calls; the
    longest first."""
    rows = _of_launching_threads(merged)
    launches = rows.drop_duplicates(["run", "phase"]).groupby("run", sort=False)["launches"].sum()
    stacks = rows[(rows["doing"] == STACK) & (rows["estimated_ms"] > 0)]
    table = stacks.groupby([*LEADING, "function"], sort=False, as_index=False)[
        ["samples", "samples_in_calls", "estimated_ms"]
    ].sum()
    table["estimated_us_per_launch"] = table["estimated_ms"] * 1e3 / table["run"].map(launches).astype("float64")
    table = table.assign(_less=-table["estimated_ms"])
    return in_order_of(table, launches.index, "_less", "function").drop(columns="_less")


def _of_launching_threads(merged: Merged) -> pd.DataFrame:
    """The rows of each phase's launching thread; the phases of a run in the order of a step."""
    rows = merged["host_time"]
    rows = rows[rows["launches_most"].astype(bool) & (rows["launches"] > 0)]
    places = {phase: number for number, phase in enumerate(MAIN_PHASES)}
    rows = rows.assign(_place=rows["phase"].map(places).fillna(len(places)))
    return in_order_of(rows, rows["run"], "_place").drop(columns="_place")


FIGURES = [
    "code", "abstained", "gain_ms", "gain_percent", "unprofiled_ms", "unprofiled_percent", "sure", "message", "advice",
]  # fmt: skip


def time_lost(merged: Merged) -> pd.DataFrame:
    """One row per run and rule that speaks or abstains; the largest gain of a run first."""
    findings = at_most(bounded(findings_of(merged), merged))
    findings = findings.assign(_less=-findings["ms"].fillna(0.0))
    return in_order_of(findings, merged["runs"]["run"], "abstained", "_less")[[*LEADING, *FIGURES]]


def findings_of(merged: Merged) -> pd.DataFrame:
    """The findings of every run; of a run with counters, also those of the rules that need them."""
    findings, runs = merged["findings"], merged["runs"]
    counted = runs.loc[runs[COUNTERS.status_column] == COMPLETE, "run"]
    if counted.empty:
        return findings
    silent = findings["run"].isin(counted) & findings["code"].isin([rule.code for rule in OF_COUNTERS])
    return pd.concat([findings[~silent], merged["counter_findings"]], ignore_index=True)


UNPROFILED = columns("""
    unprofiled_ms | float | ms | at most gained in a step without a profiler, where the GPU idles less; empty if none \
        was timed
    unprofiled_percent | float | % | the same, of that step
""")
TABLES = (
    TableSpec(
        "time_lost",
        "One row per run and rule of the diagnosis that speaks, or cannot tell",
        columns("code | text | | the rule", GAIN_OF_A_FINDING, UNPROFILED, WORDS_OF_A_FINDING),
        make=time_lost,
    ),
    TableSpec(
        "predictions",
        "One row per run that is a remedy for what the diagnosis finds in the run at the default",
        columns("""
    base_run | text | | the run at the default that differs in nothing else
    remedy | text | | the dimension in which they differ
    codes | text | | the rules whose findings in that run the remedy mends; empty where none of them spoke
    predicted_percent | float | % | of its step, the most that they say is gained; for a larger batch, of the time \
        per sequence
    predicted_ms | float | ms | the same, of its step without a profiler
    measured_percent | float | % | of its step, what the remedy gained without a profiler; below zero where it lost
    measured_ms | float | ms | the same
    holds | bool | | whether no more was gained than was said, two standard deviations allowed for
"""),
        make=predictions,
    ),
    TableSpec(
        "host_per_launch",
        "One row per run with the stage host_trace, phase that launches, and what its launching thread does; over"
        " these own_ms adds up to the phase",
        columns("""
    phase | text | | range directly inside step
    thread | int | | the thread that launches most, as in host_time
    doing | text | | as in host_time
    launches | float | | kernels and memory operations launched in the phase, per step
    calls | float | | calls per step
    own_ms | float | ms | time of the thread per step, under the trace, which slows it down
    us_per_launch | float | µs | the same for each launch of the phase
"""),
        make=host_per_launch,
    ),
    TableSpec(
        "host_stacks",
        "One row per run with the stage host_trace and Python function in which its launching threads were sampled",
        columns("""
    function | text | | innermost function, and its module
    samples | int | | stacks with it on top, over all traced steps
    samples_in_calls | int | | those of them at which the thread was in a traced call
    estimated_ms | float | ms | time there in no call per step, an estimate: its other samples × time between two \
        samples
    estimated_us_per_launch | float | µs | the same for each launch of a step
"""),
        make=host_stacks,
    ),
)
PAGE_TABLES = (
    PageTable("time_lost", "Where time is lost", rows=lambda found: found[~found["abstained"].astype(bool)]),
    PageTable("predictions", "Predicted and measured gains of remedies"),
    PageTable("host_per_launch", "What the host does for each launch"),
    PageTable("host_stacks", "Where in Python it does so"),
)
