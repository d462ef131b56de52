"""The tables of one run's counters: by kernel configuration, by range and class, and the roofs."""

from __future__ import annotations

import pandas as pd

from kernel_tables.counters.joining import NONE, configurations, joined
from kernel_tables.counters.launches import launches_of
from kernel_tables.counters.reading import CONFIGURATION
from kernel_tables.counters.verdicts import verdicts_of
from kernel_tables.counters.work import WORK, Roofs, rates_of, work_of
from kernel_tables.trace import Trace
from profile_grid.stages.capture.step_tables import measured_activities
from profile_grid.stages.counters.described import COUNTER_RANGES, COUNTERS_TABLE, ROOFS
from profile_grid.tables.classes import MEMORY_OPERATIONS, family
from profile_grid.tables.conservation import require_same
from profile_grid.tables.names import MEASURE
from profile_grid.tables.sums import known_sums

COMMUNICATION = "communication"
LEFT_OUT = "left out: communication"
LAUNCHED = ["kernel", "class", "grid", "block", "launches", "total_ns", "min_ns", "max_ns", "not_counted"]
PLACE = ["step", "phase", "range", "class"]


def measured_launches(trace: Trace) -> pd.DataFrame:
    """One row per kernel of the measured steps: kernel, class, grid, block, step, phase, range, duration_ns."""
    inside = trace.enclosing(MEASURE) >= 0
    grid, block = trace.launch_sizes
    launches = measured_activities(trace).rename(columns={"name": "kernel"})
    launches = launches.assign(grid=grid[inside], block=block[inside])
    launches = launches[(launches["step"] >= 0) & ~launches["kind"].isin(MEMORY_OPERATIONS)]
    return launches[[*CONFIGURATION, *PLACE, "duration_ns"]].astype({"kernel": "str", "class": "str"})


def joined_launches(launches: pd.DataFrame, counters: pd.DataFrame) -> pd.DataFrame:
    """The launches, each with the row of the counters that tells of it, or why none does; communication is left out."""
    matched = joined(launches, counters)
    communication = matched["class"].map(family) == COMMUNICATION
    counted_as = matched["counted_as"].mask(communication, NONE)
    return matched.assign(counted_as=counted_as, not_counted=matched["not_counted"].mask(communication, LEFT_OUT))


def counters_table(launches: pd.DataFrame, counters: pd.DataFrame, roofs: Roofs) -> pd.DataFrame:
    """One row per configuration of joined launches, the longest first: its launches in all measured steps, what one of
    them did, and its verdict. Raises NotConserved if a launch or a nanosecond is lost."""
    table = configurations(launches)
    require_same("nanoseconds", table["total_ns"].sum(), launches["duration_ns"].sum())
    require_same("launches", table["launches"].sum(), len(launches))
    metrics = _of_rows(counters, table["counted_as"])
    work = work_of(metrics)
    rates = rates_of(work, table["total_ns"] / table["launches"] / 1e9, roofs)
    table = pd.concat([table[LAUNCHED], work, rates, launches_of(table["grid"], metrics)], axis=1)
    return table.join(verdicts_of(table))[COUNTERS_TABLE.names]


def ranges_table(launches: pd.DataFrame, counters: pd.DataFrame) -> pd.DataFrame:
    """One row per step, phase, range and class of joined launches: how many, their time, that of those with counters,
    and the sums of what these did, NaN where something is not known of one that was counted."""
    counted = launches["counted_as"] != NONE
    work = work_of(_of_rows(counters, launches["counted_as"])).mask(~counted, 0.0)
    rows = launches.assign(counted_ns=launches["duration_ns"].where(counted, 0), **work)
    grouped = rows.groupby(PLACE, sort=True, observed=True)
    sums = grouped[["duration_ns", "counted_ns"]].sum().rename(columns={"duration_ns": "total_ns"})
    sums = sums.join(known_sums(rows, PLACE, WORK))
    table = sums.assign(launches=grouped.size()).reset_index()[COUNTER_RANGES.names]
    require_same("nanoseconds", table["total_ns"].sum(), launches["duration_ns"].sum())
    require_same("launches", table["launches"].sum(), len(launches))
    return table


def _of_rows(counters: pd.DataFrame, numbers: pd.Series) -> pd.DataFrame:
    """The metrics of these rows of the counters, NaN for NONE."""
    metrics = counters.drop(columns=CONFIGURATION).reset_index(drop=True)
    return metrics.reindex(numbers).set_axis(numbers.index)


def lost_share(counters: pd.DataFrame) -> float:
    """The share of the time of kernels, communication apart, that has no counters."""
    countable = counters[counters["not_counted"] != LEFT_OUT]
    total = countable["total_ns"].sum()
    return float(countable.loc[countable["not_counted"] != "", "total_ns"].sum() / total) if total else 0.0


def roofs_table(reached: Roofs, sheet: Roofs) -> pd.DataFrame:
    """One row per roof, memory first: rates per second of the data sheet and of the calibration, NaN if not known."""
    rows = [("memory", "B/s", sheet.memory_bytes_per_s, reached.memory_bytes_per_s)]
    rows += [(kind, "FLOP/s", sheet.flop_per_s.get(kind), rate) for kind, rate in reached.flop_per_s.items()]
    return ROOFS.table(rows, of_a_run=True)
