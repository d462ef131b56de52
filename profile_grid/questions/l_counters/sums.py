"""What kernels did, summed by phase, class, part and range; and what of it is matrix multiplies, beside the shapes."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from cs336_model.arithmetic.flops import matmul_flops
from cs336_model.program.variants.values import NOT_COMPILED
from kernel_tables.counters.metrics import KINDS
from kernel_tables.counters.roofs import Roofs
from kernel_tables.counters.work import WORK, rates_of
from profile_grid.quantities import known
from profile_grid.study.dimensions import COMPILE, LEADING
from profile_grid.tables.classes import is_matmul
from profile_grid.tables.conservation import check_shares, require_same
from profile_grid.tables.ideal import shape_of_run
from profile_grid.tables.model_parts import PLACE, places_with_parts
from profile_grid.tables.names import ALL_PHASES, BACKWARD, FORWARD, LOSS, RECOMPUTATION
from profile_grid.tables.per_pass import Merged
from profile_grid.tables.texts import as_texts

BY = ("phase", "class", "part", "range")
SUMMED = ["launches", "total_ns", "counted_ns", *WORK]
OF_A_PRODUCT = ["pass", "part", "counted_flops", "shape_flops", "ratio", "within_padding", "counted_share"]
PADDING = 0.05  # of FLOPs: the tiles of a matrix multiply reach over its edges
TIMES_FORWARD = {FORWARD: 1, BACKWARD: 2}  # a product of two matrices is differentiated by two


def counter_sums(merged: Merged) -> pd.DataFrame:
    """(l) One row per run and phase, class, part of the model, and range, each of a single pass. Raises NotConserved
    unless each of the four sums up to the time of all kernels."""
    rows = _with_parts(merged)
    phases = {"class": pd.Series(ALL_PHASES, rows.index), "part": rows["pass"]}
    groups = [
        rows.assign(by=by, place=phases.get(by, rows["phase"]), name=rows[by])
        .groupby(["run", "by", "place", "name"], sort=False)[SUMMED]
        .sum()
        .reset_index()
        for by in BY
    ]
    for by, group in zip(BY, groups, strict=True):
        require_same(f"nanoseconds by {by}", group["total_ns"].sum(), rows["total_ns"].sum())
    table = pd.concat(groups, ignore_index=True).rename(columns={"place": "phase"})
    table = _of_one_pass(table, merged)
    table = table.assign(share=table["gpu_time_ms"] / table.groupby(["run", "by"])["gpu_time_ms"].transform("sum"))
    check_shares(table, ["run", "by"])
    return _led(merged, table).drop(columns=["counted_ns", "total_ns"])


def counter_matmuls(merged: Merged) -> pd.DataFrame:
    """(l) One row per run, pass and part of the model with a matrix multiply: the FLOPs of a single pass by counters,
    and by the shapes. Only runs of this project's model that are not compiled: there a part's products are its own."""
    rows = _with_parts(merged)
    rows = rows[is_matmul(rows["class"])]
    counted = rows.groupby(["run", "pass", "part"], sort=False)[[*SUMMED]].sum().reset_index()
    counted = _of_one_pass(counted, merged)
    expected = {
        (run["run"], name, part): flops
        for run in _own_runs(merged)
        for (name, part), flops in _flops_of_shapes(run).items()
    }
    keys = list(counted[["run", "pass", "part"]].itertuples(index=False, name=None))
    table = counted.assign(counted_flops=counted["flops"], shape_flops=[expected.get(key, math.nan) for key in keys])
    table = table[table["shape_flops"] > 0].reset_index(drop=True)
    ratio = table["counted_flops"] / table["shape_flops"]
    table = table.assign(ratio=ratio, within_padding=(ratio - 1).abs() <= PADDING)
    return _led(merged, table)[[*LEADING, *OF_A_PRODUCT]]


def roofs_by_run(merged: Merged) -> dict[str, Roofs]:
    """The roofs that were reached beside each run."""
    found = {}
    for run, rows in as_texts(merged["roofs"]).groupby("run", sort=False):
        rates = {
            name: rate if known(rate) else None for name, rate in zip(rows["roof"], rows["reached_per_s"], strict=True)
        }
        found[run] = Roofs(rates.get("memory"), {kind: rates.get(kind) for kind in KINDS})
    return found


def _with_parts(merged: Merged) -> pd.DataFrame:
    """The sums by range with the pass and the part that each belongs to."""
    rows = as_texts(merged["counter_ranges"])
    places = places_with_parts(rows)
    others = ~places["phase"].isin((FORWARD, LOSS, BACKWARD))  # the optimizer: a pass of its own, without parts
    places.loc[others, "pass"] = places["phase"]
    return rows.merge(places, on=PLACE, how="left", validate="many_to_one")


def _of_one_pass(table: pd.DataFrame, merged: Merged) -> pd.DataFrame:
    """The table with sums of a single pass, the mean over the measured steps, and its rates beside the roofs."""
    steps = table["run"].map(merged.captured_steps).astype("float64")
    table = table.assign(
        invocations=table["launches"] / steps,
        gpu_time_ms=table["total_ns"] / steps / 1e6,
        counted_share=(table["counted_ns"] / table["total_ns"].where(table["total_ns"] > 0)).astype("float64"),
        **{name: table[name] / steps for name in WORK},
    ).drop(columns="launches")
    seconds = table["counted_ns"] / steps / 1e9
    roofs = roofs_by_run(merged)
    parts = [rates_of(own[WORK], seconds[own.index], roofs[run]) for run, own in table.groupby("run", sort=False)]
    rates = pd.concat(parts) if parts else rates_of(table[WORK], seconds, Roofs(None, {}))
    return table.join(rates)


def _led(merged: Merged, table: pd.DataFrame) -> pd.DataFrame:
    """The table with the dimensions of its runs in front, in their order."""
    runs = as_texts(merged["counter_ranges"])[LEADING].drop_duplicates("run")
    led = runs.merge(table, on="run", how="right", validate="one_to_many")
    order = {run: number for number, run in enumerate(runs["run"])}
    return led.iloc[np.argsort(led["run"].map(order).to_numpy(), kind="stable")].reset_index(drop=True)


def _own_runs(merged: Merged) -> list[dict]:
    runs = merged["runs"]
    return runs[runs[COMPILE.key] == NOT_COMPILED].to_dict("records")


def _flops_of_shapes(run: dict) -> dict[tuple[str, str], float]:
    """By pass and part the FLOPs of its matrix products in one pass."""
    shape = shape_of_run(run)
    if shape is None:
        return {}
    layers, every = shape.num_layers, int(run["checkpoint"])
    again = math.ceil(layers / every) / layers if every else 0.0
    times = TIMES_FORWARD | {RECOMPUTATION: again}
    return {
        (name, part): factor * flops for part, flops in matmul_flops(shape).items() for name, factor in times.items()
    }
