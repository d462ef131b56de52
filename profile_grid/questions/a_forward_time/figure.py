"""The figures of (a)."""

import altair as alt
import pandas as pd

from kernel_tables.page.colors import GREY, PALE
from profile_grid.figures import marks, run_selection
from profile_grid.figures.panels import AXIS_PX, Drawing, Figure, Frame, Spec, Tables, side_by_side
from profile_grid.figures.theme import GROUND, WIDTH, ContextAxis, LogAxis, Series
from profile_grid.quantities import interval, percent, significant
from profile_grid.study.dimensions import FULLEST_FIRST, MODES
from profile_grid.study.stages import CAPTURE, TIMING
from profile_grid.tables import wording
from profile_grid.tables.evidence import LAUNCH_BOUND_SHARE
from profile_grid.tables.gains import LEADING_KEYS, whole_steps
from profile_grid.tables.measured import ON_CPU, ON_GPU

DRAWN_PHASES = ("forward", "backward", "optimizer")
PROFILED_SHIFT = 1.07
PANEL_PX = 200
MEAN_AND_STD = ["mean_ms", "std_ms"]
IDLE_NOTES = {
    ON_GPU.device: "Above the line: idle for long enough to be launch-bound. The profiler adds to every launch.",
    ON_CPU.device: "Between operators, the CPU runs Python, autograd and the profiler.",
}
MODE_FILLS = {"forward": GROUND, "forward_backward": PALE, "train_step": GREY}
WIDTH_PX, HEIGHT_PX = WIDTH - AXIS_PX, 260
LIMIT_PERCENT, LEAST_IDLE_PERCENT = 100 * LAUNCH_BOUND_SHARE, 0.1


def phase_times(runs: pd.DataFrame, timings: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """One row per phase (of DRAWN_PHASES) of the fullest run of each configuration, by context: mean_ms, std_ms
    (unprofiled), profiled_ms and profiled_std_ms.

    Profiled times are from the first kernel to the last, or the wall time of the range if it has no kernels.
    """
    chosen = run_selection.fullest_runs(runs)["run"]
    keys = ["run", "phase"]
    unprofiled = timings[timings["run"].isin(chosen) & timings["phase"].isin(DRAWN_PHASES)]
    captured = phases[phases["run"].isin(chosen) & phases["phase"].isin(DRAWN_PHASES)]
    span_ms = captured["gpu_span_ns"].where(captured["kernels"] > 0, captured["wall_ns"]).astype("float64") / 1e6
    profiled = span_ms.groupby([captured[key] for key in keys], observed=True).agg(["mean", "std"]).reset_index()
    profiled = profiled.rename(columns={"mean": "profiled_ms", "std": "profiled_std_ms"})
    times = unprofiled[[*keys, "mean_ms", "std_ms"]].merge(profiled, on=keys, how="outer", validate="one_to_one")
    return run_selection.with_dimensions(times, runs).sort_values("context_length", kind="stable", ignore_index=True)


def draw_phase_times(tables: Tables) -> Drawing:
    """A panel per phase: ms against context length, a line per model without a profiler, hollow markers with it."""
    runs = tables["runs"]
    times = phase_times(runs, tables["timings"], tables["phases"]).drop(columns="mode")
    times = times[times[["mean_ms", "profiled_ms"]].notna().any(axis=1)]
    chosen = run_selection.fullest_runs(runs)
    missing = run_selection.runs_without_results(chosen, TIMING, CAPTURE)
    series = Series("model", tuple(run_selection.models_in_order(runs)))
    contexts = ContextAxis.of(runs["context_length"])

    def panel(rows: pd.DataFrame, absent: pd.DataFrame) -> Spec:
        phases = [phase for phase in DRAWN_PHASES if phase in set(rows["phase"])]
        panels = {
            phase: _panel(rows[rows["phase"] == phase], absent.drop(columns="mode"), contexts, series, phase)
            for phase in phases
        }
        return side_by_side(panels, PANEL_PX, len(DRAWN_PHASES))

    kernel = run_selection.device_words(runs).kernel
    modes = " or ".join(MODES[mode] for mode in FULLEST_FIRST if mode in set(chosen["mode"]))
    note = (
        f"Phases of one {modes}, mean ± standard deviation of the steps. With the profiler, moved right: first {kernel}"
        f" to last (wall time where no {kernel} was captured)."
    )
    return Frame(LEADING_KEYS, "No run was measured to its end.").drawing(times, chosen, missing, panel, (note,))


def _panel(
    rows: pd.DataFrame, missing: pd.DataFrame, contexts: ContextAxis, series: Series, phase: str
) -> alt.LayerChart:
    ends = marks.with_ends(rows, "profiled_ms", "profiled_std_ms", "profiled")
    ends = ends.assign(context_profiled=ends["context_length"] * PROFILED_SHIFT)
    profiled_times = ends[["profiled_ms", "profiled_std_ms"]].set_axis(MEAN_AND_STD, axis=1)
    both = pd.concat([ends[MEAN_AND_STD], profiled_times])
    y = marks.log_axis(both, *MEAN_AND_STD, PANEL_PX).with_room(below_px=marks.missing_marks_px(missing))
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
        *marks.means_with_spread(ends, contexts.x(), y, title, series, *MEAN_AND_STD, tips),
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


def busy_and_wall(runs: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """One row per run with kernels: of a mean step wall_ms, busy_ms, busy_share, kernels, and the mean kernel_us."""
    steps = whole_steps(phases[(phases["kernels"] > 0) & (phases["wall_ns"] > 0)])
    columns = ["wall_ns", "gpu_busy_ns", "kernel_ns", "kernels"]
    means = steps.groupby("run", sort=False, observed=True)[columns].mean().reset_index()
    rows = means[["run", "kernels"]].assign(
        wall_ms=means["wall_ns"] / 1e6,
        busy_ms=means["gpu_busy_ns"] / 1e6,
        kernel_us=means["kernel_ns"] / 1e3 / means["kernels"],
        busy_share=means["gpu_busy_ns"] / means["wall_ns"],
    )
    return run_selection.with_dimensions(rows, runs)


def draw_launch_bound(tables: Tables) -> Drawing:
    """The idle share of a step against the mean length of a kernel, a marker per run: models by colour, modes by
    fill. A logarithmic axis separates the runs that hardly wait."""
    runs, terms = tables["runs"], run_selection.device_words(tables["runs"])
    busy = busy_and_wall(runs, tables["phases"])
    idle_percent = 100 * (1 - busy["busy_share"])
    busy = busy.assign(how=busy["mode"].map(MODES), idle_percent=idle_percent.clip(lower=LEAST_IDLE_PERCENT))
    models = tuple(model for model in run_selection.models_in_order(runs) if model in set(busy["model"]))
    series = Series("model", models, hollow=True)
    fills = {MODES[mode]: fill for mode, fill in MODE_FILLS.items() if mode in set(busy["mode"])}
    tooltip = marks.tooltip(
        busy, ("wall_ms", "wall (ms)", marks.DIGITS), ("busy_ms", "busy (ms)", marks.DIGITS),
        ("busy_share", "busy share", marks.SHARE), ("kernels", terms.kernels, ",.0f"),
        ("kernel_us", f"mean {terms.kernel} (µs)", marks.DIGITS),
    )  # fmt: skip

    def panel(rows: pd.DataFrame, _: pd.DataFrame) -> alt.LayerChart:
        lengths = LogAxis.around(rows["kernel_us"], WIDTH_PX)
        idle = LogAxis.around([*rows["idle_percent"], LIMIT_PERCENT], HEIGHT_PX)
        markers = alt.Chart(rows).mark_point(strokeWidth=1.4).encode(
            x=alt.X("kernel_us:Q", scale=lengths.scale, axis=lengths.axis(f"mean {terms.kernel} length (µs)")),
            y=alt.Y("idle_percent:Q", scale=idle.scale, axis=idle.axis(f"{terms.device} idle (% of wall time)")),
            color=series.color(), shape=series.shape(), fill=marks.fill_key("how", fills), tooltip=tooltip,
        )  # fmt: skip
        limit = pd.DataFrame({"idle_percent": [LIMIT_PERCENT] if terms.device == ON_GPU.device else []})
        line = alt.Chart(limit).mark_rule(color=GREY).encode(y=alt.Y("idle_percent:Q", scale=idle.scale))
        return alt.layer(line, markers, width=WIDTH_PX, height=HEIGHT_PX)

    notes = ["One marker per run, means of the captured steps. " + IDLE_NOTES[terms.device]]
    if (idle_percent < LEAST_IDLE_PERCENT).any():
        notes.append(f"Less than {LEAST_IDLE_PERCENT} % is drawn as {LEAST_IDLE_PERCENT} %.")
    reason = f"No capture holds {terms.kernels}, so how long the {terms.device} was busy is not known."
    title = f"Share of a step in which no {terms.kernel} runs, against the mean length of one"
    missing = run_selection.runs_without_results(runs, CAPTURE)
    return Frame(LEADING_KEYS, reason).drawing(busy, runs, missing, panel, notes, title=title)


def result_launch_bound(tables: Tables) -> str:
    """The share of a step in which the device is idle; for a GPU, in how many runs it is LAUNCH_BOUND_SHARE or more."""
    busy, device = busy_and_wall(tables["runs"], tables["phases"]), run_selection.device_words(tables["runs"]).device
    idle = 1 - busy["busy_share"]
    if device == ON_CPU.device:
        return f"The CPU runs no operator in {interval(idle, percent)} of a step"
    long = wording.of_all((idle >= LAUNCH_BOUND_SHARE).sum(), len(busy), "run")
    share = f"The {device} is idle for {interval(idle, percent)} of a step"
    return f"{share}; for {percent(LAUNCH_BOUND_SHARE)} or more in {long}"


LAUNCH_BOUND = Figure(
    "launch_bound", "Share of a step in which no kernel runs, against the mean length of one",
    draw_launch_bound, result_launch_bound, tables=("runs", "phases"),
)  # fmt: skip


FIGURES = (PHASE_TIMES, LAUNCH_BOUND)
