"""The figure of a question about one dimension: the speed-up over the default, of a step and of its main phases."""

from dataclasses import dataclass

import altair as alt
import pandas as pd

from kernel_tables.page.colors import GREY
from profile_grid.figures import marks, run_selection
from profile_grid.figures.panels import GAP_PX, Drawing, Figure, Frame, Spec, Tables, notes_on_cut, row
from profile_grid.figures.theme import INK, WIDTH, LogAxis, Series
from profile_grid.quantities import interval, ratio
from profile_grid.study.dimensions import FULLEST_FIRST, KEYS, MODES, Dimension
from profile_grid.study.stages import TIMING
from profile_grid.tables import evidence, pivoting, wording
from profile_grid.tables.names import BACKWARD, FORWARD, OPTIMIZER, WHOLE_STEP

PHASES = (WHOLE_STEP, FORWARD, BACKWARD, OPTIMIZER)
BAR_PX, SPACE_PX, NAMES_PX = 9, 8, 200  # of a bar, between configurations, of their names
MAX_BARS = 40  # in one panel
VALUE, BAR, NO_DIFFERENCE = "value", "bar", "even"  # columns: value of the dimension, configuration, ratio 1
PALE_OPACITY = 0.35


@dataclass(frozen=True)
class SpeedUps:
    """A figure of speed-ups: its dimension, its table (as from `times_with_base`), and the words for the default."""

    dimension: Dimension
    table: str
    base: str

    def figure(self, name: str, title: str) -> Figure:
        return Figure(name, title, self.draw, self.result, tables=("runs", self.table))

    def draw(self, tables: Tables) -> Drawing:
        """A panel per phase of PHASES, with a bar per configuration and value, from 1 to the speed-up."""
        runs, dimension = tables["runs"], self.dimension
        rows = _rows(tables[self.table], dimension, runs)
        values = [dimension.name_of(value) for value in pivoting.sorted_values(rows, dimension.key)]
        series = Series(VALUE, tuple(values))
        bars = list(dict.fromkeys(rows[BAR]))
        drawn_bars = bars[:MAX_BARS]
        notes = [
            f"Times without a profiler: {self.base} ÷ the other, with the interval between processes"
            " (measured if several timed a run, else assumed); pale where it includes no difference.",
            *notes_on_cut(len(bars), MAX_BARS, "The first {most} of {number} configurations"),
        ]

        def panel(data: pd.DataFrame, _: pd.DataFrame) -> Spec:
            return _panels(data[data[BAR].isin(drawn_bars)], drawn_bars, series, f"times as fast as {self.base}")

        frame = Frame(KEYS, f"No two timed runs differ only in {dimension.heading}, one of them {self.base}.")
        return frame.drawing(rows, runs, run_selection.runs_without_results(runs, TIMING), panel, notes)

    def result(self, tables: Tables) -> str:
        """The clear speed-ups at each value, and how many are unclear, of complete steps in the commonest mode."""
        times, dimension = tables[self.table], self.dimension
        steps = times[times["phase"] == WHOLE_STEP]
        mode = max(FULLEST_FIRST, key=lambda mode: (steps["mode"] == mode).sum())
        steps = steps[steps["mode"] == mode]
        if steps.empty:
            return ""
        clear = steps[steps["verdict"].isin((evidence.FASTER, evidence.SLOWER))]
        speed_ups = [
            f"{interval(clear[clear[dimension.key] == value]['speed_up'], ratio)} {dimension.words(value)}"
            for value in pivoting.sorted_values(clear, dimension.key)
        ]
        unclear_count = len(steps) - len(clear)
        verb = "is" if unclear_count == 1 else "are"
        unclear = f"{wording.of_all(unclear_count, len(steps), 'comparison')} {verb} unclear"
        if not speed_ups:
            return wording.capital(unclear)
        lead = f"Speed-up of a {MODES[mode]}: {', '.join(speed_ups)}"
        return f"{lead}; {unclear}" if unclear_count else lead


def _rows(times: pd.DataFrame, dimension: Dimension, runs: pd.DataFrame) -> pd.DataFrame:
    """The speed-ups of the phases that are drawn, by configuration, the smallest model first."""
    repeats_step = (times["mode"] == FORWARD) & (times["phase"] == FORWARD)  # such a step is only a forward pass
    times = run_selection.sorted_by_size(times[times["phase"].isin(PHASES) & ~repeats_step], runs)
    bars = run_selection.labels(times.assign(**{dimension.key: dimension.default}))
    is_clear = times["verdict"].isin((evidence.FASTER, evidence.SLOWER))
    return times.assign(
        **{VALUE: times[dimension.key].map(dimension.name_of), BAR: bars, NO_DIFFERENCE: 1.0},
        opacity=is_clear.map({True: 1.0, False: PALE_OPACITY}),
    )


def _panels(rows: pd.DataFrame, bars: list[str], series: Series, title: str) -> Spec:
    phases = [phase for phase in PHASES if phase in set(rows["phase"])]
    width = (WIDTH - NAMES_PX) // max(len(phases), 2) - GAP_PX
    x = LogAxis.around(
        [1.0, *rows[["speed_up", "speed_up_low", "speed_up_high"]].to_numpy().ravel()], width, margin=1.1
    )
    size = {"width": width, "height": len(bars) * (len(series.names) * BAR_PX + SPACE_PX)}
    panels = []
    for phase in phases:
        is_first = phase == phases[0]
        y = marks.bar_axis(bars, labelled=is_first)
        panel = _panel(rows[rows["phase"] == phase], x, y, series, title if is_first else None)
        panels.append(panel.properties(title=alt.TitleParams(phase, frame="group"), **size))
    return row(*panels, spacing=GAP_PX)


def _panel(rows: pd.DataFrame, x: LogAxis, y: alt.Y, series: Series, title: str | None) -> alt.LayerChart:
    channels = {"y": y, "yOffset": alt.YOffset(f"{VALUE}:N", scale=alt.Scale(domain=list(series.names)))}
    low, middle = (alt.X(f"{name}:Q", scale=x.scale, axis=x.axis(title)) for name in ("speed_up_low", "speed_up"))
    tooltip = marks.tooltip(rows, ("speed_up", "times as fast", marks.DIGITS), ("verdict", "verdict"))
    no_difference = alt.Chart(pd.DataFrame({"speed_up": [1.0]})).mark_rule(color=GREY).encode(x=middle)
    base = alt.Chart(rows).encode(**channels)
    bars = base.mark_bar().encode(
        x=middle,
        x2=NO_DIFFERENCE,
        color=series.color(),
        opacity=alt.Opacity("opacity:Q", scale=None, legend=None),
        tooltip=tooltip,
    )
    intervals = base.mark_rule(color=INK).encode(x=low, x2="speed_up_high")
    return alt.layer(bars, intervals, no_difference)
