"""The tables of the diagnosis: findings of every run, and predicted and measured gains of remedies."""

import pandas as pd

from kernel_tables.diagnosis.rules import OF_COUNTERS
from profile_grid.questions.time_lost import host
from profile_grid.questions.time_lost.bounds import at_most, bounded
from profile_grid.questions.time_lost.predictions import predictions
from profile_grid.results.results import COMPLETE
from profile_grid.study.dimensions import LEADING
from profile_grid.study.stages import COUNTERS
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables.findings import GAIN_OF_A_FINDING, WORDS_OF_A_FINDING
from profile_grid.tables.per_pass import Merged, in_order_of

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
    *host.TABLES,
)
PAGE_TABLES = (
    PageTable("time_lost", "Where time is lost", rows=lambda found: found[~found["abstained"].astype(bool)]),
    PageTable("predictions", "Predicted and measured gains of remedies"),
    PageTable("host_per_launch", "What the host does for each launch"),
    PageTable("host_stacks", "Where in Python it does so"),
)
