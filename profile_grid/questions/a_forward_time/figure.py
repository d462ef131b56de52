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
PROFILED_SHIFT = 1.07  # factor of x (logarithmic) for profiled markers, so that they hide none of the others
PHASE_HEIGHT_PX = 200
MEAN_AND_STD = ["mean_ms", "std_ms"]
IDLE_NOTES = {
    ON_GPU.device: "Above the line: idle for long enough to be launch-bound. The profiler adds to every launch.",
    ON_CPU.device: "Between operators, the CPU runs Python, autograd and the profiler.",
}
MODE_FILLS = {"forward": GROUND, "forward_backward": PALE, "train_step": GREY}
IDLE_WIDTH_PX, IDLE_HEIGHT_PX = WIDTH - AXIS_PX, 260
LAUNCH_BOUND_PERCENT = 100 * LAUNCH_BOUND_SHARE
MIN_DRAWN_PERCENT = 0.1  # less idle time is drawn as this, since a logarithmic axis has no zero


def phase_times(runs: pd.DataFrame, timings: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """One row per phase (of DRAWN_PHASES) of the fullest run of each configuration, in the order of contexts: mean_ms
    and std_ms without a profiler, profiled_ms and profiled_std_ms.

    A profiled time is that from the first kernel to the last, or the wall time of the range if it has no kernels.
    """
    run_names = run_selection.fullest_runs(runs)["run"]
    keys = ["run", "phase"]
    unprofiled = timings[timings["run"].isin(run_names) & timings["phase"].isin(DRAWN_PHASES)]
    captured = phases[phases["run"].isin(run_names) & phases["phase"].isin(DRAWN_PHASES)]
    span_ms = captured["gpu_span_ns"].where(captured["kernels"] > 0, captured["wall_ns"]).astype("float64") / 1e6
    profiled = span_ms.groupby([captured[key] for key in keys], observed=True).agg(["mean", "std"]).reset_index()
    profiled = profiled.rename(columns={"mean": "profiled_ms", "std": "profiled_std_ms"})
    times = unprofiled[[*keys, "mean_ms", "std_ms"]].merge(profiled, on=keys, how="outer", validate="one_to_one")
    return run_selection.with_dimensions(times, runs).sort_values("context_length", kind="stable", ignore_index=True)


def draw_phase_times(tables: Tables) -> Drawing:
    """A panel per phase: ms against context length, a line per model without a profiler, hollow markers with it."""
    runs = tables["runs"]
    # Each configuration has one mode here. Without the column, the page does not filter the figure by mode.
    times = phase_times(runs, tables["timings"], tables["phases"]).drop(columns="mode")
    times = times[times[["mean_ms", "profiled_ms"]].notna().any(axis=1)]
    fullest_runs = run_selection.fullest_runs(runs)
    missing = run_selection.runs_without_results(fullest_runs, TIMING, CAPTURE)
    series = Series("model", tuple(run_selection.models_in_order(runs)))
    contexts = ContextAxis.of(runs["context_length"])

    def panel(panel_times: pd.DataFrame, panel_missing: pd.DataFrame) -> Spec:
        panel_missing = panel_missing.drop(columns="mode")
        rows_by_phase = {phase: panel_times[panel_times["phase"] == phase] for phase in DRAWN_PHASES}
        charts = {
            phase: _phase_chart(rows, panel_missing, contexts, series, phase)
            for phase, rows in rows_by_phase.items()
            if len(rows)
        }
        return side_by_side(charts, PHASE_HEIGHT_PX, len(DRAWN_PHASES))

    kernel = run_selection.device_words(runs).kernel
    modes = " or ".join(MODES[mode] for mode in FULLEST_FIRST if mode in set(fullest_runs["mode"]))
    note = (
        f"Phases of one {modes}, mean ± standard deviation of the steps. With the profiler, moved right: first {kernel}"
        f" to last (wall time where no {kernel} was captured)."
    )
    return Frame(LEADING_KEYS, "No run was measured to its end.").drawing(times, fullest_runs, missing, panel, (note,))


def _phase_chart(
    times: pd.DataFrame, missing: pd.DataFrame, contexts: ContextAxis, series: Series, phase: str
) -> alt.LayerChart:
    """The chart of one phase, from its rows of `phase_times`; only the first phase has a title of the y axis."""
    times = marks.with_ends(times, "profiled_ms", "profiled_std_ms", "profiled")
    times = times.assign(context_profiled=times["context_length"] * PROFILED_SHIFT)
    profiled_times = times[["profiled_ms", "profiled_std_ms"]].set_axis(MEAN_AND_STD, axis=1)
    all_times = pd.concat([times[MEAN_AND_STD], profiled_times])  # for an axis that holds both
    y = marks.log_axis(all_times, *MEAN_AND_STD, PHASE_HEIGHT_PX).with_room(below_px=marks.missing_marks_px(missing))
    title = "time (ms)" if phase == DRAWN_PHASES[0] else None
    tooltip = marks.tooltip(
        times, ("phase", "phase"), ("mean_ms", "without profiler (ms)", marks.DIGITS),
        ("std_ms", "± (ms)", marks.DIGITS),
        ("profiled_ms", "profiled (ms)", marks.DIGITS), ("profiled_std_ms", "profiled ± (ms)", marks.DIGITS),
    )  # fmt: skip
    profiled = alt.Chart(times[times["profiled_ms"].notna()])
    profiled = profiled.encode(x=contexts.x("context_profiled"), color=series.color())
    low, middle = (alt.Y(f"{name}:Q", scale=y.scale, axis=y.axis(title)) for name in ("profiled_low", "profiled_ms"))
    return alt.layer(
        profiled.mark_rule().encode(y=low, y2="profiled_high"),
        profiled.mark_point(fill=GROUND, strokeWidth=1.3).encode(y=middle, shape=series.shape(), tooltip=tooltip),
        *marks.means_with_spread(times, contexts.x(), y, title, series, *MEAN_AND_STD, tooltip),
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


def mean_steps(runs: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """One row per run with kernels: wall_ms, busy_ms, busy_share and the number of kernels of its mean step, and the
    mean length of a kernel, kernel_us."""
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
    fill. Both axes are logarithmic, which separates runs that hardly wait."""
    runs, words = tables["runs"], run_selection.device_words(tables["runs"])
    steps = mean_steps(runs, tables["phases"])
    idle_percent = 100 * (1 - steps["busy_share"])
    steps = steps.assign(how=steps["mode"].map(MODES), idle_percent=idle_percent.clip(lower=MIN_DRAWN_PERCENT))
    models = tuple(model for model in run_selection.models_in_order(runs) if model in set(steps["model"]))
    series = Series("model", models, hollow=True)
    fills = {MODES[mode]: fill for mode, fill in MODE_FILLS.items() if mode in set(steps["mode"])}
    tooltip = marks.tooltip(
        steps, ("wall_ms", "wall (ms)", marks.DIGITS), ("busy_ms", "busy (ms)", marks.DIGITS),
        ("busy_share", "busy share", marks.SHARE), ("kernels", words.kernels, ",.0f"),
        ("kernel_us", f"mean {words.kernel} (µs)", marks.DIGITS),
    )  # fmt: skip

    def panel(panel_steps: pd.DataFrame, _: pd.DataFrame) -> alt.LayerChart:
        x = LogAxis.around(panel_steps["kernel_us"], IDLE_WIDTH_PX)
        y = LogAxis.around([*panel_steps["idle_percent"], LAUNCH_BOUND_PERCENT], IDLE_HEIGHT_PX)
        markers = alt.Chart(panel_steps).mark_point(strokeWidth=1.4).encode(
            x=alt.X("kernel_us:Q", scale=x.scale, axis=x.axis(f"mean {words.kernel} length (µs)")),
            y=alt.Y("idle_percent:Q", scale=y.scale, axis=y.axis(f"{words.device} idle (% of wall time)")),
            color=series.color(), shape=series.shape(), fill=marks.fill_key(fills), tooltip=tooltip,
        )  # fmt: skip
        limits = [LAUNCH_BOUND_PERCENT] if words.device == ON_GPU.device else []  # a CPU has no launches
        line = alt.Chart(pd.DataFrame({"idle_percent": limits})).mark_rule(color=GREY)
        line = line.encode(y=alt.Y("idle_percent:Q", scale=y.scale))
        return alt.layer(line, markers, width=IDLE_WIDTH_PX, height=IDLE_HEIGHT_PX)

    notes = ["One marker per run, means of the captured steps. " + IDLE_NOTES[words.device]]
    if (idle_percent < MIN_DRAWN_PERCENT).any():
        notes.append(f"Less than {MIN_DRAWN_PERCENT} % is drawn as {MIN_DRAWN_PERCENT} %.")
    reason = f"No capture holds {words.kernels}, so how long the {words.device} was busy is not known."
    title = f"Share of a step in which no {words.kernel} runs, against the mean length of one"
    missing = run_selection.runs_without_results(runs, CAPTURE)
    return Frame(LEADING_KEYS, reason).drawing(steps, runs, missing, panel, notes, title=title)


def result_launch_bound(tables: Tables) -> str:
    """The share of a step in which the device is idle; for a GPU, in how many runs it is LAUNCH_BOUND_SHARE or more."""
    runs = tables["runs"]
    idle_shares = 1 - mean_steps(runs, tables["phases"])["busy_share"]
    shares, device = interval(idle_shares, percent), run_selection.device_words(runs).device
    if device == ON_CPU.device:
        return f"The CPU runs no operator in {shares} of a step"
    idle_runs = wording.of_all((idle_shares >= LAUNCH_BOUND_SHARE).sum(), len(idle_shares), "run")
    return f"The {device} is idle for {shares} of a step; for {percent(LAUNCH_BOUND_SHARE)} or more in {idle_runs}"


LAUNCH_BOUND = Figure(
    "launch_bound", "Share of a step in which no kernel runs, against the mean length of one",
    draw_launch_bound, result_launch_bound, tables=("runs", "phases"),
)  # fmt: skip


FIGURES = (PHASE_TIMES, LAUNCH_BOUND)
