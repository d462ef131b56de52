"""Figure of (a): the time of each phase by model and context, with the profiler and without."""

from __future__ import annotations

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import Spec, row
from profile_grid.figures.scales import Contexts, Log, Series
from profile_grid.figures.shown import fullest_runs, models_in_order, with_dimensions, without_figures, words
from profile_grid.figures.splitting import Group, split, stacked
from profile_grid.figures.theme import GROUND, WIDTH
from profile_grid.quantities import interval, significant
from profile_grid.study.dimensions import CONTEXT_LENGTH, FULLEST_FIRST, MODE, MODEL, MODES
from profile_grid.study.stages import CAPTURE, TIMING

DRAWN_PHASES = ("forward", "backward", "optimizer")
SHOWN = (MODEL.key, CONTEXT_LENGTH.key, MODE.key)
PROFILED_SHIFT = 1.07
PANEL_PX, AXIS_PX = 200, 52


def phase_times(runs: pd.DataFrame, timings: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """One row per phase of the fullest run of each configuration: mean_ms, std_ms (unprofiled), profiled_ms and
    profiled_std_ms. Profiled is first kernel to last where there are kernels, else the wall time of the range."""
    chosen = fullest_runs(runs)["run"]
    keys = ["run", "phase"]
    unprofiled = timings[timings["run"].isin(chosen) & timings["phase"].isin(DRAWN_PHASES)]
    captured = phases[phases["run"].isin(chosen) & phases["phase"].isin(DRAWN_PHASES)]
    span_ms = captured["gpu_span_ns"].where(captured["kernels"] > 0, captured["wall_ns"]).astype("float64") / 1e6
    profiled = span_ms.groupby([captured[key] for key in keys], observed=True).agg(["mean", "std"]).reset_index()
    profiled = profiled.rename(columns={"mean": "profiled_ms", "std": "profiled_std_ms"})
    times = unprofiled[[*keys, "mean_ms", "std_ms"]].merge(profiled, on=keys, how="outer", validate="one_to_one")
    return with_dimensions(times, runs).sort_values("context_length", kind="stable", ignore_index=True)


def draw_phase_times(tables: Tables) -> Drawing:
    """A panel per phase: ms against context length, a line per model, profiled beside unprofiled with their spread."""
    runs = tables["runs"]
    times = phase_times(runs, tables["timings"], tables["phases"]).drop(columns="mode")
    chosen = fullest_runs(runs)
    missing = without_figures(chosen, TIMING, CAPTURE).drop(columns="mode")
    if times[["mean_ms", "profiled_ms"]].isna().all(axis=None):
        return Drawing(reason="No run was measured to its end.", notes=tuple(marks.missing_notes(missing)))
    series = Series("model", tuple(models_in_order(runs)))
    contexts = Contexts.of(runs["context_length"])
    groups, left_out = split(chosen, SHOWN)

    def panels(group: Group) -> Spec | None:
        own = group.of(times)
        present = [phase for phase in DRAWN_PHASES if phase in set(own["phase"])]
        drawn = [
            _panel(own[own["phase"] == phase], phase, group.of(missing), contexts, series).properties(
                title=marks.panel_title(phase), width=WIDTH // len(DRAWN_PHASES) - AXIS_PX, height=PANEL_PX
            )
            for phase in present
        ]
        return row(*drawn, spacing=16) if drawn else None

    kernel = words(runs).kernel
    modes = " or ".join(MODES[mode] for mode in FULLEST_FIRST if mode in set(chosen["mode"]))
    note = (
        f"Phases of one {modes}. Filled: without a profiler, mean ± standard deviation of the timed steps. "
        f"Hollow, moved right: under the profiler, first {kernel} to last (wall time where no {kernel} was captured)."
    )
    return Drawing(stacked(groups, panels), (note, *left_out, *marks.missing_notes(missing)))


def _panel(
    times: pd.DataFrame, phase: str, missing: pd.DataFrame, contexts: Contexts, series: Series
) -> alt.LayerChart:
    own = marks.with_ends(times, "mean_ms", "std_ms", "mean")
    own = marks.with_ends(own, "profiled_ms", "profiled_std_ms", "profiled")
    own = own.assign(context_profiled=own["context_length"] * PROFILED_SHIFT)
    ends = own[["mean_ms", "mean_low", "mean_high", "profiled_ms", "profiled_low", "profiled_high"]]
    y = Log.around(ends.to_numpy("float64").ravel(), PANEL_PX).with_room(below_px=marks.room_px(missing))
    axis = y.axis("time (ms)" if phase == DRAWN_PHASES[0] else None)

    def at(column: str) -> alt.Y:
        return alt.Y(f"{column}:Q", scale=y.scale, axis=axis)

    base = alt.Chart(own).encode(color=series.color())
    seen = marks.tooltip(
        own, ("phase", "phase"), ("mean_ms", "without profiler (ms)", marks.DIGITS), ("std_ms", "± (ms)", marks.DIGITS),
        ("profiled_ms", "profiled (ms)", marks.DIGITS), ("profiled_std_ms", "profiled ± (ms)", marks.DIGITS),
    )  # fmt: skip
    x, shifted, marker = contexts.x(), contexts.x("context_profiled"), {"shape": series.shape(), "tooltip": seen}
    layers = [
        base.mark_line().encode(x=x, y=at("mean_ms"), strokeDash=series.dash()),
        base.mark_rule().encode(x=shifted, y=at("profiled_low"), y2="profiled_high"),
        base.mark_point(fill=GROUND, strokeWidth=1.3).encode(x=shifted, y=at("profiled_ms"), **marker),
        base.mark_rule().encode(x=x, y=at("mean_low"), y2="mean_high"),
        base.mark_point(filled=True).encode(x=x, y=at("mean_ms"), **marker),
    ]
    return alt.layer(*layers, *marks.missing_marks(missing, contexts, y, series))


def caption_phase_times(tables: Tables) -> str:
    """How long each phase takes without a profiler, from the shortest to the longest."""
    runs = tables["runs"]
    times = phase_times(runs, tables["timings"], tables["phases"])
    of_phases = {phase: times[times["phase"] == phase]["mean_ms"] for phase in DRAWN_PHASES}
    parts = [f"{phase} {interval(own, _ms)}" for phase, own in of_phases.items() if own.notna().any()]
    measured = f"Without a profiler: {', '.join(parts)}." if parts else "No phase was timed without a profiler."
    return f"{measured} {marks.missing_count(without_figures(fullest_runs(runs), TIMING, CAPTURE))}".strip()


def _ms(value: float) -> str:
    return f"{significant(value)} ms"


PHASE_TIMES = Figure(
    "phase_times", "Time of forward, backward and optimizer", draw_phase_times, caption_phase_times,
    tables=("runs", "timings", "phases"),
)  # fmt: skip
