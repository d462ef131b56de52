"""The collectives of one step of two runs: one overlaps them with computation most, the other least."""

import pandas as pd

from profile_grid.study.dimensions import LEADING, OPTIMIZER, PARALLEL, keys_without
from profile_grid.study.table_spec import TableSpec, columns
from profile_grid.tables.per_pass import Merged, numbers


def communication_timelines(merged: Merged) -> pd.DataFrame:
    """(n) One row per collective of the middle captured step of rank 0, of two runs that do the same work: those whose
    overlap differs most, the run that overlaps less first."""
    steps = merged["rank_steps"]
    steps = steps[(steps["rank"] == 0) & (numbers(steps["communication_ns"]) > 0)]
    steps = steps[steps["device"] == steps.groupby("run")["device"].transform("min")]
    names = _pair(steps)
    if not names:
        return COMMUNICATION_TIMELINES.table([])
    shown = steps[steps["run"].isin(names)].sort_values("step")
    place, count = shown.groupby("run").cumcount(), shown.groupby("run")["step"].transform("size")
    middle = shown.loc[place == count // 2, ["run", "rank", "device", "step", "step_ns"]]
    single = merged["collectives"].merge(middle, on=["run", "rank", "device", "step"])
    single = single.assign(run_place=single["run"].map(names.index)).sort_values(["run_place", "number"], kind="stable")
    start_ms, length_ms = numbers(single["start_ns"]) / 1e6, numbers(single["duration_ns"]) / 1e6
    return single[[*LEADING, "step", "number", "operation"]].assign(
        step_ms=numbers(single["step_ns"]) / 1e6, start_ms=start_ms, end_ms=start_ms + length_ms,
        exposed_ms=numbers(single["exposed_ns"]) / 1e6,
    )  # fmt: skip


def _pair(steps: pd.DataFrame) -> list[str]:
    """The run that overlaps least and the one that overlaps most, of the group in which they differ most; [] if no
    group has two runs."""
    sums = steps.assign(
        communication=numbers(steps["communication_ns"]), overlapped=numbers(steps["overlapped_ns"])
    ).groupby(["run", *keys_without(PARALLEL.key, OPTIMIZER.key)], sort=False, dropna=False)
    sums = sums[["communication", "overlapped"]].sum().reset_index()
    sums["overlap"] = sums["overlapped"] / sums["communication"]
    pairs = []
    for _, group in sums.groupby(keys_without(PARALLEL.key, OPTIMIZER.key), sort=False, dropna=False):
        least, most = group.loc[group["overlap"].idxmin()], group.loc[group["overlap"].idxmax()]
        if most["overlap"] > least["overlap"]:
            pairs.append((most["overlap"] - least["overlap"], [least["run"], most["run"]]))
    return max(pairs, key=lambda pair: pair[0])[1] if pairs else []


COMMUNICATION_TIMELINES = TableSpec(
    "communication_timelines",
    "(n) One row per collective in one captured step of rank 0 of two runs, one that overlaps and one that does not",
    columns("""
    step | int | | number of the captured step
    number | int | | as in collectives
    operation | text | | all-reduce, ...
    step_ms | float | ms | length of the step
    start_ms | float | ms | start of the collective, since the step began
    end_ms | float | ms | its end
    exposed_ms | float | ms | of its time, while no kernel computed
"""),
    make=communication_timelines,
)
