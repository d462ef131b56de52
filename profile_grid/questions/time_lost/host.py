"""Host time per launch on the launching thread, from runs with the stage host_trace."""

import pandas as pd

from profile_grid.stages.host_trace.tables import STACK
from profile_grid.study.dimensions import LEADING
from profile_grid.study.table_spec import TableSpec, columns
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


TABLES = (
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
