"""The work of kernels in a single pass, summed by phase, class, part and range."""

import pandas as pd

from kernel_tables.counters.metrics import FLOP_KINDS
from kernel_tables.counters.work import WORK_COLUMNS, Roofs, rates_of
from profile_grid.stages.counters.tables import known_sums
from profile_grid.tables import conservation, model_parts, texts
from profile_grid.tables.names import ALL_PHASES, BACKWARD, FORWARD, LOSS
from profile_grid.tables.per_pass import Merged, in_order_of, with_leading_columns

GROUPINGS = ("phase", "class", "part", "range")
SUMMED_COLUMNS = ["launches", "total_ns", "counted_ns", *WORK_COLUMNS]  # counted_ns: time of launches with counters


def counter_sums(merged: Merged) -> pd.DataFrame:
    """(l) The work of a single pass, summed in four ways: by phase, by class, by part of the model and pass, and by
    range; one row per run and each of these. Raises NotConserved unless each way adds up to the time of all kernels."""
    ranges = merged["counter_ranges"]
    rows = with_parts(ranges)
    # what the column `phase` holds; the rows of a class are of all phases together
    phase_by_grouping = {"phase": rows["phase"], "class": ALL_PHASES, "part": rows["pass"], "range": rows["phase"]}
    tables = []
    for by in GROUPINGS:
        labelled = rows.assign(by=by, phase=phase_by_grouping[by], name=rows[by])
        sums = known_sums(labelled, ("run", "by", "phase", "name"), SUMMED_COLUMNS, sort=False).reset_index()
        conservation.require_same(f"nanoseconds by {by}", sums["total_ns"].sum(), rows["total_ns"].sum())
        tables.append(sums)
    table = per_pass_with_rates(pd.concat(tables, ignore_index=True), merged)
    table = table.assign(share=table["gpu_time_ms"] / table.groupby(["run", "by"])["gpu_time_ms"].transform("sum"))
    conservation.check_shares(table, ["run", "by"])
    return in_order_of(with_leading_columns(table, ranges), ranges["run"]).drop(columns=["counted_ns", "total_ns"])


def roofs_by_run(merged: Merged) -> dict[str, Roofs]:
    """The measured roofs by run. A rate that was not measured is None."""
    roofs = {}
    for run, rows in merged["roofs"].groupby("run", sort=False):
        rates = rows.dropna(subset="reached_per_s").set_index("roof")["reached_per_s"]
        roofs[run] = Roofs(rates.get("memory"), {kind: rates.get(kind) for kind in FLOP_KINDS})
    return roofs


def with_parts(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the `pass` and the `part` of their ranges. A phase such as the optimizer is a pass of its own."""
    rows = texts.as_texts(rows)
    parts = model_parts.ranges_with_parts(rows)
    is_own_pass = ~parts["phase"].isin((FORWARD, LOSS, BACKWARD))
    parts.loc[is_own_pass, "pass"] = parts["phase"]
    return rows.merge(parts, on=model_parts.KEY_COLUMNS, how="left", validate="many_to_one")


def per_pass_with_rates(table: pd.DataFrame, merged: Merged) -> pd.DataFrame:
    """A table with SUMMED_COLUMNS over all captured steps, divided by the number of steps: work, launches
    (`invocations`) and time per pass. With the rates of the launches with counters, and their shares of the roofs."""
    steps = table["run"].map(merged.captured_steps).astype("float64")
    table = table.assign(
        invocations=table["launches"] / steps,
        gpu_time_ms=table["total_ns"] / steps / 1e6,
        counted_share=(table["counted_ns"] / table["total_ns"].where(table["total_ns"] > 0)).astype("float64"),
        **{name: table[name] / steps for name in WORK_COLUMNS},
    ).drop(columns="launches")
    counted_s = table["counted_ns"] / steps / 1e9  # work is known of the launches with counters only
    roofs, work_by_run = roofs_by_run(merged), table.groupby("run", sort=False)[WORK_COLUMNS]
    rates = [rates_of(work, counted_s[work.index], roofs[run]) for run, work in work_by_run]
    return table.join(pd.concat(rates) if rates else rates_of(table[WORK_COLUMNS], counted_s, Roofs(None, {})))
