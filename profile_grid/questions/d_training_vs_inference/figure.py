"""Figure of (d): the share of each family of kernel classes in a step, inference next to training."""

import altair as alt
import pandas as pd

from kernel_tables.page.colors import DARK
from profile_grid.figures import marks, panels, run_selection
from profile_grid.figures.theme import CROSS, INK, SMALL, SMALLEST, SOFT, part_style
from profile_grid.quantities import interval, percent
from profile_grid.study import dimensions, stages
from profile_grid.tables.classes import MATMUL, family
from profile_grid.tables.gains import LEADING_KEYS
from profile_grid.tables.names import ALL_PHASES, FORWARD

INFERENCE, TRAINING = "inference", "training"
SIDES = (INFERENCE, TRAINING)  # of the figure, from left to right
MIN_LABELLED_SHARE = 0.06  # of a bar: room for a percentage
MAX_BARS = 60  # in one panel
SIDE_WIDTH_PX = 295
SHORTER = "†"  # marks training in a mode with fewer phases than the fullest one


def sides_of(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of both sides, with or without results, and their `side`. Inference has the runs of mode forward;
    training has the run of the fullest other mode of each configuration."""
    inference = runs["mode"] == FORWARD
    return pd.concat(
        [runs[inference].assign(side=INFERENCE), run_selection.fullest_runs(runs[~inference]).assign(side=TRAINING)]
    )


def drawn_shares(runs: pd.DataFrame, class_shares: pd.DataFrame) -> pd.DataFrame:
    """One row per run of a side and family of kernel classes: the family's `share` of the step's GPU time, and `start`
    and `end` of its part of the bar, as shares, too."""
    step_shares = class_shares[class_shares["phase"] == ALL_PHASES]
    step_shares = step_shares.assign(family=step_shares["class"].astype("str").map(family))
    sums = step_shares.groupby(["run", "family"], sort=False)["share"].sum().reset_index()
    sums = sums.merge(sides_of(runs)[["run", "side"]], on="run", how="inner", validate="many_to_one")
    return run_selection.with_dimensions(marks.stacked(sums, "share", "family"), runs)


def draw_class_shares(tables: panels.Tables) -> panels.Drawing:
    """A stacked bar per model and context: the forward pass of inference on the left, training on the right."""
    runs, words = tables["runs"], run_selection.device_words(tables["runs"])
    side_runs, shares = sides_of(runs), drawn_shares(runs, tables["class_shares"])
    fills = marks.part_fills(shares, "family")
    missing = run_selection.runs_without_results(side_runs, stages.CAPTURE).merge(side_runs[["run", "side"]], on="run")
    axis = alt.Axis(title=f"share of the {words.time} of a step", format="%", values=[0, 0.2, 0.4, 0.6, 0.8, 1])
    x = alt.X("start:Q", scale=alt.Scale(domain=[0, 1]), axis=axis)
    # the fullest mode of training that was captured; if none was, the fullest of all runs
    modes = set(shares.loc[shares["side"] == TRAINING, "mode"]) or set(side_runs["mode"])
    fullest_mode = next((mode for mode in dimensions.FULLEST_FIRST if mode in modes), FORWARD)
    titles = {INFERENCE: dimensions.MODES[FORWARD], TRAINING: dimensions.MODES[fullest_mode]}
    is_shorter = (shares["side"] == TRAINING) & (shares["mode"] != fullest_mode)
    shares = shares.assign(bar=_bar_names(shares), text=is_shorter.map({True: SHORTER, False: ""}))

    def panel(panel_shares: pd.DataFrame, panel_missing: pd.DataFrame) -> panels.Spec:
        panel_runs = run_selection.sorted_by_size(pd.concat([panel_shares, panel_missing]), runs)
        bars = list(dict.fromkeys(_bar_names(panel_runs)))[:MAX_BARS]
        charts = []
        for side in (side for side in SIDES if side in set(panel_runs["side"])):
            side_shares, side_missing = (rows[rows["side"] == side] for rows in (panel_shares, panel_missing))
            is_leftmost = not charts
            channels = {"x": x, "y": marks.bar_axis(bars, labelled=is_leftmost)}
            chart = _side(side_shares, side_missing, bars, channels, fills)
            charts.append(chart.properties(title=alt.TitleParams(f"{side} ({titles[side]})", frame="group")))
        return panels.row(*charts, spacing=panels.GAP_PX)

    notes = [f"The {words.time} of a step is the sum over {words.kernels} and memory operations; bars sum to 100 %."]
    if is_shorter.any():
        shorter_modes = dict.fromkeys(shares.loc[is_shorter, "mode"])
        notes.append(f"{SHORTER} {' or '.join(dimensions.MODES[mode] for mode in shorter_modes)}.")
    # a note if there are more than MAX_BARS bars, with MAX_BARS for {most}
    notes += panels.notes_on_cut(shares["bar"].nunique(), MAX_BARS, "At most {most} models and contexts")
    # one panel for each combination of the dimensions besides LEADING_KEYS: model, context and mode
    frame = panels.Frame(LEADING_KEYS, f"No capture holds {words.kernels}, so their classes have no shares.")
    title = f"{words.kernel.capitalize()} classes as shares of the time of all {words.kernels}"
    return frame.drawing(shares, side_runs, missing, panel, notes, title=title)


def _bar_names(rows: pd.DataFrame) -> list[str]:
    """The name of each row's bar: "small · 512"."""
    return [f"{model} · {context}" for model, context in zip(rows["model"], rows["context_length"], strict=True)]


def _side(
    shares: pd.DataFrame, missing: pd.DataFrame, bars: list[str], channels: dict, fills: alt.Fill
) -> alt.LayerChart:
    """One side of a panel: these bars, or why they are missing."""
    # Without the column `mode`, the page does not filter by mode, so both sides stay; the title names the mode.
    shares = shares[shares["bar"].isin(bars)].drop(columns="mode")
    tooltip = marks.tooltip(shares, ("family", "family"), ("share", "share", marks.SHARE))
    stacks, crosses = marks.bars(shares, channels, fills, tooltip), _crosses(shares, missing, bars, channels)
    layers = [stacks, _percentages(shares, channels), *crosses]
    return alt.layer(*layers, height=alt.Step(marks.BAR_PX), width=SIDE_WIDTH_PX)


def _percentages(shares: pd.DataFrame, channels: dict) -> alt.Chart:
    """The percentages in the bars that are wide enough for them."""
    wide = shares[shares["share"] >= MIN_LABELLED_SHARE]
    wide = wide.assign(
        start=(wide["start"] + wide["end"]) / 2,  # a text is drawn at `start` (x of the channels): here, the middle
        text=[f"{100 * share:.0f}" for share in wide["share"]],
        ink=["white" if part_style(name).color in DARK else "black" for name in wide["family"]],
    )
    ink = alt.Color("ink:N", scale=None, legend=None)
    return alt.Chart(wide).mark_text(fontSize=SMALLEST).encode(**channels, text="text:N", color=ink)


def _crosses(shares: pd.DataFrame, missing: pd.DataFrame, bars: list[str], channels: dict) -> list[alt.Chart]:
    """Marks for missing bars: a cross and the status, with the reason on hover; or that the grid has no such run."""
    texts = missing["status"].replace(run_selection.STATUS_WORDS)
    missing = missing.assign(bar=_bar_names(missing), text=texts, start=0.02)
    missing = missing[missing["bar"].isin(bars)].drop(columns="mode")  # as in _side
    bars_in_grid = {*shares["bar"], *missing["bar"]}
    others = pd.DataFrame({"bar": [bar for bar in bars if bar not in bars_in_grid]})
    others = others.assign(text="not in the grid", start=0.02)
    layers = []
    if len(missing):
        why = marks.tooltip(missing, ("text", "no results"), ("reason", "reason"))
        base = alt.Chart(missing).encode(**channels, tooltip=why)
        layers.append(base.mark_point(shape=CROSS, size=25, strokeWidth=1.5, color=INK))
        layers.append(base.mark_text(align="left", dx=8, fontSize=SMALL).encode(text="text:N"))
    if len(others):
        base = alt.Chart(others).mark_text(align="left", fontSize=SMALL, color=SOFT)
        layers.append(base.encode(**channels, text="text:N"))
    return layers


def result_class_shares(tables: panels.Tables) -> str:
    """The headline of the figure: the share of matrix multiplies in inference and in training."""
    shares = drawn_shares(tables["runs"], tables["class_shares"])
    matmuls = shares[shares["family"] == MATMUL]
    shares_by_side = {side: matmuls[matmuls["side"] == side]["share"] for side in SIDES}
    texts = [f"{interval(values, percent)} in {side}" for side, values in shares_by_side.items() if len(values)]
    time = run_selection.device_words(tables["runs"]).time
    return f"Of the {time}, matrix multiplies take {', '.join(texts)}" if texts else ""


FIGURES = (
    panels.Figure(
        "class_shares", "Kernel classes as shares of the time of all kernels", draw_class_shares, result_class_shares,
        tables=("runs", "class_shares"),
    ),
)  # fmt: skip
