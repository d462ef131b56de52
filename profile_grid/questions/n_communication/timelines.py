"""The communication of one step of two runs on time axes, one above the other: one overlaps with computation most, the
other least."""

import altair as alt
import pandas as pd

from kernel_tables.page.colors import BLUE, PALE, VERMILLION
from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.panels import Frame
from profile_grid.figures.run_selection import labels, without_figures
from profile_grid.figures.theme import WIDTH
from profile_grid.quantities import percent
from profile_grid.study.dimensions import KEYS, LEADING, OPTIMIZER, PARALLEL, keys_without
from profile_grid.study.table_spec import TableSpec, columns
from profile_grid.tables.per_pass import Merged, numbers
from profile_grid.tables.texts import as_texts

NAMES_PX, LANE_PX = 200, 46
OVERLAPPED, EXPOSED = "overlapped", "exposed"
NO_PAIR = "No two runs that do the same work on several GPUs were captured."


def communication_timelines(merged: Merged) -> pd.DataFrame:
    """(n) One row per collective of the middle captured step of rank 0, of two runs that do the same work: those whose
    overlap differs most, the run that overlaps less first."""
    steps = as_texts(merged["rank_steps"])
    steps = steps[(steps["rank"] == 0) & (numbers(steps["communication_ns"]) > 0)]
    steps = steps[steps["device"] == steps.groupby("run")["device"].transform("min")]
    names = _pair(steps)
    if not names:
        return COMMUNICATION_TIMELINES.table([])
    shown = steps[steps["run"].isin(names)].sort_values("step")
    place, count = shown.groupby("run").cumcount(), shown.groupby("run")["step"].transform("size")
    middle = shown.loc[place == count // 2, ["run", "rank", "device", "step", "step_ns"]]
    single = as_texts(merged["collectives"]).merge(middle, on=["run", "rank", "device", "step"])
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


def bars(tables: Tables) -> pd.DataFrame:
    """One row per collective, with the label of its run, and whether more than half of it was exposed."""
    rows = tables["communication_timelines"]
    is_exposed = rows["exposed_ms"] > (rows["end_ms"] - rows["start_ms"]) / 2
    return rows.assign(bar=labels(rows), kind=is_exposed.map({True: EXPOSED, False: OVERLAPPED}))


def draw(tables: Tables) -> Drawing:
    """A lane per run: its step, and each collective where it ran."""
    runs, rows = tables["runs"], bars(tables)
    notes = [
        "One captured step of rank 0 of each run, under the profiler. Pale: the step; what ran besides is not drawn."
    ]
    return Frame(KEYS, NO_PAIR).drawing(rows, runs, without_figures(runs.iloc[:0]), lambda data, _: _panel(data), notes)


def _panel(rows: pd.DataFrame) -> alt.LayerChart:
    names = list(dict.fromkeys(rows["bar"]))
    lanes = marks.bar_axis(names)
    axis = alt.Axis(title="time since the step began (ms)")
    steps = alt.Chart(rows.drop_duplicates("run").assign(begin=0.0)).mark_bar(color=PALE, height=LANE_PX - 10)
    tooltip = marks.tooltip(
        rows, ("operation", "operation"), ("start_ms", "start (ms)", marks.DIGITS),
        ("end_ms", "end (ms)", marks.DIGITS), ("exposed_ms", "exposed (ms)", marks.DIGITS),
    )  # fmt: skip
    color = alt.Color("kind:N", title=None, scale=alt.Scale(domain=[EXPOSED, OVERLAPPED], range=[VERMILLION, BLUE]))
    collectives = alt.Chart(rows).mark_bar(height=LANE_PX - 22).encode(
        x=alt.X("start_ms:Q", axis=axis), x2="end_ms:Q", y=lanes, color=color, tooltip=tooltip
    )  # fmt: skip
    whole = steps.encode(x=alt.X("begin:Q", axis=axis), x2="step_ms:Q", y=lanes)
    return alt.layer(whole, collectives, width=WIDTH - NAMES_PX, height=alt.Step(LANE_PX))


def result(tables: Tables) -> str:
    """How much of the communication of each run was overlapped."""
    rows = bars(tables)
    texts = []
    for _, data in rows.groupby("run", sort=False):
        share = 1 - data["exposed_ms"].sum() / (data["end_ms"] - data["start_ms"]).sum()
        words = [key.words(data[key.key].iloc[0]) for key in (PARALLEL, OPTIMIZER)]
        is_usual = data[OPTIMIZER.key].iloc[0] == OPTIMIZER.default
        texts.append(f"{percent(share)} {words[0] if is_usual else ' '.join(words)}")
    return f"Communication is overlapped with computation: {', '.join(texts)}" if texts else ""


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
TIMELINES = Figure(
    "communication_timelines", "Communication in a step: least and most overlapped", draw, result,
    tables=("runs", "communication_timelines"),
)  # fmt: skip
