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
MAX_KERNELS = 10
TEXT_PX, LEAST_PX = 130, 260  # of the text after the longest bar; of the longest bar with its text, at least
CHARACTER_PX = 5.7  # mean width of a character of a name


def largest_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The largest run with a complete capture for each combination of the dimensions that the figure does not show: of
    the fullest mode, then the largest model, then the longest context. In the order of the table."""
    complete = runs[runs[stages.CAPTURE.status_column] == COMPLETE]
    order = {model: position for position, model in enumerate(models_in_order(runs))}
    mode = {mode: -position for position, mode in enumerate(dimensions.FULLEST_FIRST)}
    ranked = complete.assign(_mode=complete["mode"].map(mode), _model=complete["model"].map(order))
    ranked = ranked.sort_values(["_mode", "_model", "context_length"], ascending=False, kind="stable")
    largest = ranked.drop_duplicates(dimensions.keys_without(*LEADING_KEYS))
    return runs[runs["run"].isin(largest["run"])]


def top_kernels(runs: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """COLUMNS of the kernels with the longest times in each of the largest runs, longest first, by `scope`: the forward
    pass, and all phases if there are others. `time_ms` and `launches` are per step, `share` is of the scope."""
    tables = []
    for run in largest_runs(runs)[dimensions.LEADING].to_dict("records"):
        run_rows = kernels[(kernels["run"] == run["run"]) & (kernels["step"] >= 0)]
        forward, steps = run_rows[run_rows["phase"] == FORWARD], run_rows["step"].nunique()
        scopes = {FORWARD: forward} if len(forward) else {}
        scopes |= {ALL_PHASES: run_rows} if len(run_rows) > len(forward) else {}
        tables += [_longest(rows, steps).assign(**run, scope=scope) for scope, rows in scopes.items()]
    return pd.concat(tables, ignore_index=True)[COLUMNS] if tables else pd.DataFrame(columns=COLUMNS)


def _longest(kernels: pd.DataFrame, steps: int) -> pd.DataFrame:
    """The MAX_KERNELS kernels with the longest times in these rows of so many steps, longest first."""
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
    runs, terms = tables["runs"], device_words(tables["runs"])
    top = top_kernels(runs, tables["kernels"])
    short = short_names(top["kernel"], names_of_summary_kernels(tables))
    top = top.assign(bar=top["kernel"].map(short), text=_texts(top), start=0.0, end=top["time_ms"])
    fills = marks.part_fills(top.assign(end=top["share"]), "family")  # panels have axes of their own
    names_px = CHARACTER_PX * max(map(len, top["bar"]), default=0)

    def panel(rows: pd.DataFrame, _: pd.DataFrame) -> Spec:
        title = {FORWARD: "forward pass", ALL_PHASES: f"all of one {dimensions.MODES[rows['mode'].iloc[0]]}"}
        width = max(theme.WIDTH - names_px, LEAST_PX)
        room = alt.Scale(domain=[0, max(rows["time_ms"].max(), 1e-9) * width / (width - TEXT_PX)], nice=False)
        x = alt.X("start:Q", scale=room, axis=alt.Axis(title=f"{terms.time} per step (ms)", tickCount=5, grid=False))
        scopes = rows.drop(columns=list(dimensions.KEYS)).groupby("scope", sort=False)
        return column(*[
            _bars(scope_rows, x, fills, terms).properties(
                title=alt.TitleParams(title[scope], frame="group"), width=width, height=alt.Step(marks.BAR_PX)
            )
            for scope, scope_rows in scopes
        ], spacing=18)  # fmt: skip

    legend = tuple(f"{short[kernel]}: {kernel}" for kernel in dict.fromkeys(top["kernel"]) if short[kernel] != kernel)
    notes = [] if top.empty else [f"The largest that were captured: {'; '.join(labels(top.drop_duplicates('run')))}."]
    frame = panels.Frame(LEADING_KEYS, f"No capture holds {terms.kernels}.")
    title = f"The {terms.kernels} with the most time"
    return frame.drawing(top, runs, runs_without_results(runs, stages.CAPTURE), panel, notes, legend, title)


def _texts(top: pd.DataFrame) -> list[str]:
    rows = top.itertuples(index=False)
    return [f"{significant(row.time_ms)} ms, {percent(row.share)}, {count(row.launches)}×" for row in rows]


def _bars(top: pd.DataFrame, x: alt.X, fills: alt.Fill, terms: Words) -> alt.LayerChart:
    tooltip = marks.tooltip(
        top, ("kernel", terms.kernel), ("class", "class"), ("time_ms", "per step (ms)", marks.DIGITS),
        ("share", "share", marks.SHARE), ("launches", "launches per step", ",.1~f"),
    )  # fmt: skip
    return marks.bars(top, {"x": x, "y": marks.bar_axis(list(top["bar"]))}, fills, tooltip)


def result_top_kernels(tables: Tables) -> str:
    """The share of the top kernel in the step of the first of the largest runs."""
    top = top_kernels(tables["runs"], tables["kernels"])
    run_top = top[top["run"] == top["run"].iloc[0]]
    first = run_top[run_top["scope"] == run_top["scope"].iloc[-1]].iloc[0]
    name = short_names(top["kernel"], names_of_summary_kernels(tables))[first["kernel"]]
    share, time = percent(first["share"]), device_words(tables["runs"]).time
    return f"{name} takes {share} of the {time} of {labels(run_top.head(1))[0]}"


FIGURES = (
    Figure(
        "top_kernels", "The kernels with the most time", draw_top_kernels, result_top_kernels,
        tables=("runs", "kernels", "top_kernels"),
    ),
)  # fmt: skip
