"""The work of kernels in a single pass, summed by phase, class, part and range."""

import pandas as pd

from kernel_tables.counters.metrics import KINDS
from kernel_tables.counters.work import WORK, Roofs, rates_of
from profile_grid.stages.counters.tables import known_sums
from profile_grid.tables import conservation, model_parts, texts
from profile_grid.tables.names import ALL_PHASES, BACKWARD, FORWARD, LOSS
from profile_grid.tables.per_pass import Merged, in_order_of, with_leading_columns

GROUPINGS = ("phase", "class", "part", "range")
SUMS = ["launches", "total_ns", "counted_ns", *WORK]


def counter_sums(merged: Merged) -> pd.DataFrame:
    """(l) The work of a single pass: one row per run for each of its phases, classes, parts of the model (by pass), and
    ranges. Raises NotConserved unless each of these four adds up to the time of all kernels."""
    rows = with_parts(merged["counter_ranges"])
    # what the column `phase` holds, by grouping: for parts the pass
    phases = {"class": pd.Series(ALL_PHASES, rows.index), "part": rows["pass"]}
    groups = []
    for by in GROUPINGS:
        labelled = rows.assign(by=by, place=phases.get(by, rows["phase"]), name=rows[by])
        sums = known_sums(labelled, ("run", "by", "place", "name"), SUMS, sort=False).reset_index()
        conservation.require_same(f"nanoseconds by {by}", sums["total_ns"].sum(), rows["total_ns"].sum())
        groups.append(sums)
    table = pd.concat(groups, ignore_index=True).rename(columns={"place": "phase"})
    table = per_pass_with_rates(table, merged)
    table = table.assign(share=table["gpu_time_ms"] / table.groupby(["run", "by"])["gpu_time_ms"].transform("sum"))
    conservation.check_shares(table, ["run", "by"])
    runs = merged["counter_ranges"]
    return in_order_of(with_leading_columns(table, runs), runs["run"]).drop(columns=["counted_ns", "total_ns"])


def roofs_by_run(merged: Merged) -> dict[str, Roofs]:
    """The measured roofs by run, None where one was not measured."""
    roofs = {}
    for run, rows in merged["roofs"].groupby("run", sort=False):
        rates = rows.dropna(subset="reached_per_s").set_index("roof")["reached_per_s"]
        roofs[run] = Roofs(rates.get("memory"), {kind: rates.get(kind) for kind in KINDS})
    return roofs


def with_parts(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows by range, with the pass and the part of each."""
    rows = texts.as_texts(rows)
    places = model_parts.ranges_with_parts(rows)
    is_other_phase = ~places["phase"].isin(
        (FORWARD, LOSS, BACKWARD)
    )  # the optimizer, for example: each is a pass of its own
    places.loc[is_other_phase, "pass"] = places["phase"]
    return rows.merge(places, on=model_parts.KEY_COLUMNS, how="left", validate="many_to_one")


def per_pass_with_rates(table: pd.DataFrame, merged: Merged) -> pd.DataFrame:
    """The table with its work, launches (`invocations`) and time per pass, and the rates and shares of the roofs."""
    steps = table["run"].map(merged.captured_steps).astype("float64")
    table = table.assign(
        invocations=table["launches"] / steps,
        gpu_time_ms=table["total_ns"] / steps / 1e6,
        counted_share=(table["counted_ns"] / table["total_ns"].where(table["total_ns"] > 0)).astype("float64"),
        **{name: table[name] / steps for name in WORK},
    ).drop(columns="launches")
    seconds = table["counted_ns"] / steps / 1e9
    roofs = roofs_by_run(merged)
    parts = [rates_of(group[WORK], seconds[group.index], roofs[run]) for run, group in table.groupby("run", sort=False)]
    rates = pd.concat(parts) if parts else rates_of(table[WORK], seconds, Roofs(None, {}))
    return table.join(rates)
