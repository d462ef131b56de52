"""Figure of (b): the kernels with the longest times in the largest runs."""

import altair as alt
import pandas as pd

from kernel_tables.kernel_names.short import short_names
from profile_grid.figures import marks, panels, theme
from profile_grid.figures.panels import Drawing, Figure, Spec, Tables, column
from profile_grid.figures.run_selection import device_words, labels, models_in_order, runs_without_results
from profile_grid.quantities import count, percent, significant
from profile_grid.results.results import COMPLETE
from profile_grid.study import dimensions, stages
from profile_grid.tables.classes import family
from profile_grid.tables.gains import LEADING_KEYS
from profile_grid.tables.measured import Words, names_of_summary_kernels
from profile_grid.tables.names import ALL_PHASES, FORWARD

COLUMNS = [*dimensions.LEADING, "scope", "rank", "kernel", "class", "family", "launches", "time_ms", "share"]
MAX_KERNELS = 10  # per run and scope
TEXT_PX = 130  # room for the text after the longest bar
MIN_WIDTH_PX = 260  # of a panel: its longest bar and TEXT_PX
CHARACTER_PX = 5.7  # mean width of a character of a name, left of the bars


def largest_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """For each combination of the dimensions besides LEADING_KEYS, the largest run with a complete capture: that with
    the fullest mode, of these that with the largest model, then that with the longest context."""
    complete = runs[runs[stages.CAPTURE.status_column] == COMPLETE]
    model_ranks = {model: rank for rank, model in enumerate(models_in_order(runs))}
    mode_ranks = {mode: -rank for rank, mode in enumerate(dimensions.FULLEST_FIRST)}  # the fullest has the largest
    ranked = complete.assign(_mode=complete["mode"].map(mode_ranks), _model=complete["model"].map(model_ranks))
    ranked = ranked.sort_values(["_mode", "_model", "context_length"], ascending=False, kind="stable")
    largest = ranked.drop_duplicates(dimensions.keys_without(*LEADING_KEYS))
    return runs[runs["run"].isin(largest["run"])]


def drawn_kernels(runs: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """The kernels with the longest times in each of the largest runs, longest first, with COLUMNS. There are rows for
    two scopes: the forward pass, and all phases if the run has others. `time_ms` and `launches` are per step, `share`
    is of the scope."""
    tables = []
    for run in largest_runs(runs)[dimensions.LEADING].to_dict("records"):
        all_phases = kernels[(kernels["run"] == run["run"]) & (kernels["step"] >= 0)]
        forward, steps = all_phases[all_phases["phase"] == FORWARD], all_phases["step"].nunique()
        if len(forward):
            tables.append(_longest(forward, steps).assign(**run, scope=FORWARD))
        if len(all_phases) > len(forward):
            tables.append(_longest(all_phases, steps).assign(**run, scope=ALL_PHASES))
    return pd.concat(tables, ignore_index=True)[COLUMNS] if tables else pd.DataFrame(columns=COLUMNS)


def _longest(kernels: pd.DataFrame, steps: int) -> pd.DataFrame:
    """The MAX_KERNELS kernels with the longest times in these rows of `steps` steps, longest first."""
    sums = kernels.groupby(["kernel", "class"], sort=False, observed=True)[["total_ns", "launches"]].sum().reset_index()
    sums = sums.astype({"kernel": "str", "class": "str"})
    table = sums.assign(
        share=sums["total_ns"] / max(sums["total_ns"].sum(), 1),
        time_ms=sums["total_ns"] / 1e6 / steps,
        launches=sums["launches"] / steps,
        family=sums["class"].map(family),
    )
    table = table.sort_values(["total_ns", "kernel"], ascending=[False, True]).head(MAX_KERNELS)
    return table.assign(rank=range(1, len(table) + 1))


def draw_top_kernels(tables: Tables) -> Drawing:
    """Bars by short name, for the forward pass and below it for the complete step. The legend has the full names that
    differ from the short ones."""
    runs, words = tables["runs"], device_words(tables["runs"])
    drawn = drawn_kernels(runs, tables["kernels"])
    short = short_names(drawn["kernel"], names_of_summary_kernels(tables))
    drawn = drawn.assign(bar=drawn["kernel"].map(short), text=_texts(drawn), start=0.0, end=drawn["time_ms"])
    # The legend leaves out what is too short to be seen. Panels have different scales, so shares are compared.
    fills = marks.part_fills(drawn.assign(end=drawn["share"]), "family")
    width_px = max(theme.WIDTH - CHARACTER_PX * max(map(len, drawn["bar"]), default=0), MIN_WIDTH_PX)

    def panel(rows: pd.DataFrame, _: pd.DataFrame) -> Spec:
        titles = {FORWARD: "forward pass", ALL_PHASES: f"all of one {dimensions.MODES[rows['mode'].iloc[0]]}"}
        axis_end_ms = max(rows["time_ms"].max(), 1e-9) * width_px / (width_px - TEXT_PX)  # leaves room for the text
        axis = alt.Axis(title=f"{words.time} per step (ms)", tickCount=5, grid=False)
        x = alt.X("start:Q", scale=alt.Scale(domain=[0, axis_end_ms], nice=False), axis=axis)
        # without columns of dimensions, the page does not filter the figure, which has few of the runs
        scopes = rows.drop(columns=list(dimensions.KEYS)).groupby("scope", sort=False)
        return column(*[
            _bars(scope_rows, x, fills, words).properties(
                title=alt.TitleParams(titles[scope], frame="group"), width=width_px, height=alt.Step(marks.BAR_PX)
            )
            for scope, scope_rows in scopes
        ], spacing=18)  # fmt: skip

    legend = tuple(f"{short[kernel]}: {kernel}" for kernel in dict.fromkeys(drawn["kernel"]) if short[kernel] != kernel)
    run_labels = labels(drawn.drop_duplicates("run"))
    notes = [f"The largest that were captured: {'; '.join(run_labels)}."] if run_labels else []
    frame = panels.Frame(LEADING_KEYS, f"No capture holds {words.kernels}.")
    title = f"The {words.kernels} with the most time"
    missing = runs_without_results(runs, stages.CAPTURE)
    return frame.drawing(drawn, runs, missing, panel, notes, legend=legend, title=title)


def _texts(kernels: pd.DataFrame) -> list[str]:
    """The text behind each bar."""
    rows = kernels.itertuples(index=False)
    return [f"{significant(row.time_ms)} ms, {percent(row.share)}, {count(row.launches)}×" for row in rows]


def _bars(kernels: pd.DataFrame, x: alt.X, fills: alt.Fill, words: Words) -> alt.LayerChart:
    tooltip = marks.tooltip(
        kernels, ("kernel", words.kernel), ("class", "class"), ("time_ms", "per step (ms)", marks.DIGITS),
        ("share", "share", marks.SHARE), ("launches", "launches per step", ",.1~f"),
    )  # fmt: skip
    return marks.bars(kernels, {"x": x, "y": marks.bar_axis(list(kernels["bar"]))}, fills, tooltip)


def result_top_kernels(tables: Tables) -> str:
    """The share of the top kernel in the step of the first of the largest runs."""
    drawn = drawn_kernels(tables["runs"], tables["kernels"])
    of_run = drawn[drawn["run"] == drawn["run"].iloc[0]]
    top = of_run[of_run["scope"] == of_run["scope"].iloc[-1]].iloc[0]  # the last scope is the fullest
    name = short_names(drawn["kernel"], names_of_summary_kernels(tables))[top["kernel"]]
    time = device_words(tables["runs"]).time
    return f"{name} takes {percent(top['share'])} of the {time} of {labels(of_run.head(1))[0]}"


FIGURES = (
    Figure(
        "top_kernels", "The kernels with the most time", draw_top_kernels, result_top_kernels,
        tables=("runs", "kernels", "top_kernels"),
    ),
)  # fmt: skip
