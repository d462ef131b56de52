"""Figure of (a): the time of each phase by model and context, with the profiler and without."""

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import Spec
from profile_grid.figures.panels import Frame, side_by_side
from profile_grid.figures.run_selection import fullest_runs, models_in_order, with_dimensions, without_figures, words
from profile_grid.figures.scales import Contexts, Series
from profile_grid.figures.theme import GROUND
from profile_grid.quantities import interval, significant
from profile_grid.study.dimensions import CONTEXT_LENGTH, FULLEST_FIRST, MODE, MODEL, MODES
from profile_grid.study.stages import CAPTURE, TIMING

DRAWN_PHASES = ("forward", "backward", "optimizer")
PANEL_DIMENSIONS = (MODEL.key, CONTEXT_LENGTH.key, MODE.key)
PROFILED_SHIFT = 1.07
PANEL_PX = 200
TIME = ["mean_ms", "std_ms"]


def phase_times(runs: pd.DataFrame, timings: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """One row per phase of the fullest run of each configuration: mean_ms, std_ms (unprofiled), profiled_ms and
    profiled_std_ms.

    Profiled times are from the first kernel to the last, or the wall time of the range if there are no kernels.
    """
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
    """A panel per phase: ms against context length, a line per model, with and without the profiler."""
    runs = tables["runs"]
    times = phase_times(runs, tables["timings"], tables["phases"]).drop(columns="mode")
    times = times[times[["mean_ms", "profiled_ms"]].notna().any(axis=1)]
    chosen = fullest_runs(runs)
    missing = without_figures(chosen, TIMING, CAPTURE)
    series = Series("model", tuple(models_in_order(runs)))
    contexts = Contexts.of(runs["context_length"])

    def panel(rows: pd.DataFrame, absent: pd.DataFrame) -> Spec:
        phases = [phase for phase in DRAWN_PHASES if phase in set(rows["phase"])]
        panels = {
            phase: _panel(rows[rows["phase"] == phase], absent.drop(columns="mode"), contexts, series, phase)
            for phase in phases
        }
        return side_by_side(panels, PANEL_PX, len(DRAWN_PHASES))

    kernel = words(runs).kernel
    modes = " or ".join(MODES[mode] for mode in FULLEST_FIRST if mode in set(chosen["mode"]))
    note = (
        f"Phases of one {modes}, mean ± standard deviation of the steps. With the profiler, moved right: first {kernel}"
        f" to last (wall time where no {kernel} was captured)."
    )
    return Frame(PANEL_DIMENSIONS, "No run was measured to its end.").drawing(times, chosen, missing, panel, (note,))


def _panel(rows: pd.DataFrame, missing: pd.DataFrame, contexts: Contexts, series: Series, phase: str) -> alt.LayerChart:
    ends = marks.with_ends(rows, "profiled_ms", "profiled_std_ms", "profiled")
    ends = ends.assign(context_profiled=ends["context_length"] * PROFILED_SHIFT)
    both = pd.concat([ends[["mean_ms", "std_ms"]], ends[["profiled_ms", "profiled_std_ms"]].set_axis(TIME, axis=1)])
    y = marks.axis_of(both, *TIME, PANEL_PX).with_room(below_px=marks.room_px(missing))
    title = "time (ms)" if phase == DRAWN_PHASES[0] else None
    tips = marks.tooltip(
        ends, ("phase", "phase"), ("mean_ms", "without profiler (ms)", marks.DIGITS),
        ("std_ms", "± (ms)", marks.DIGITS),
        ("profiled_ms", "profiled (ms)", marks.DIGITS), ("profiled_std_ms", "profiled ± (ms)", marks.DIGITS),
    )  # fmt: skip
    captured = ends[ends["profiled_ms"].notna()]
    profiled = alt.Chart(captured).encode(x=contexts.x("context_profiled"), color=series.color())
    low, middle = (alt.Y(f"{name}:Q", scale=y.scale, axis=y.axis(title)) for name in ("profiled_low", "profiled_ms"))
    return alt.layer(
        profiled.mark_rule().encode(y=low, y2="profiled_high"),
        profiled.mark_point(fill=GROUND, strokeWidth=1.3).encode(y=middle, shape=series.shape(), tooltip=tips),
        *marks.measured(ends, contexts.x(), y, title, series, *TIME, tips),
        *marks.missing_marks(missing, contexts, y, series),
        marks.hollow_and_filled("with the profiler", "without a profiler"),
    )


def result_phase_times(tables: Tables) -> str:
    """How long each phase takes without a profiler, from the shortest to the longest."""
    times = phase_times(tables["runs"], tables["timings"], tables["phases"])
    ms_by_phase = {phase: times[times["phase"] == phase]["mean_ms"] for phase in DRAWN_PHASES}
    parts = [f"{phase} {interval(ms, significant)} ms" for phase, ms in ms_by_phase.items() if ms.notna().any()]
    return f"Without a profiler: {', '.join(parts)}" if parts else ""


PHASE_TIMES = Figure(
    "phase_times", "Time of forward, backward and optimizer by model and context length", draw_phase_times,
    result_phase_times, tables=("runs", "timings", "phases"),
)  # fmt: skip
