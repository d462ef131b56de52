"""Figure of (d): the share of each family of kernels in a step, inference next to training."""

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

INFERENCE, TRAINING = SIDES = ("inference", "training")
LEAST_LABELLED = 0.06  # the share of a bar with room for its percentage
MAX_BARS = 60  # in one panel
WIDTH_PX = 295
SHORTER = "†"  # marks training in a mode with fewer phases than the fullest one


def sides_of(runs: pd.DataFrame) -> pd.DataFrame:
    """The declared runs with their `side`: mode forward, and the fullest training mode of each configuration."""
    inference = runs["mode"] == FORWARD
    return pd.concat(
        [runs[inference].assign(side=INFERENCE), run_selection.fullest_runs(runs[~inference]).assign(side=TRAINING)]
    )


def family_shares(runs: pd.DataFrame, shares: pd.DataFrame) -> pd.DataFrame:
    """One row per run of a side and family of classes: its `share` of the step's GPU time, and `start` and `end` of its
    part of the bar, as shares."""
    step_shares = shares[shares["phase"] == ALL_PHASES]
    step_shares = step_shares.assign(family=step_shares["class"].astype("str").map(family))
    sums = step_shares.groupby(["run", "family"], sort=False)["share"].sum().reset_index()
    sums = sums.merge(sides_of(runs)[["run", "side"]], on="run", how="inner", validate="many_to_one")
    return run_selection.with_dimensions(marks.stacked(sums, "share", "family"), runs)


def draw_class_shares(tables: panels.Tables) -> panels.Drawing:
    """A stacked bar per model and context: the forward pass of inference on the left, training on the right."""
    runs, terms = tables["runs"], run_selection.device_words(tables["runs"])
    declared, shares = sides_of(runs), family_shares(runs, tables["class_shares"])
    fills = marks.part_fills(shares, "family")
    missing = run_selection.runs_without_results(declared, stages.CAPTURE).merge(declared[["run", "side"]], on="run")
    axis = alt.Axis(title=f"share of the {terms.time} of a step", format="%", values=[0, 0.2, 0.4, 0.6, 0.8, 1])
    x = alt.X("start:Q", scale=alt.Scale(domain=[0, 1]), axis=axis)
    full = next((mode for mode in dimensions.FULLEST_FIRST if mode in set(shares["mode"])), FORWARD)
    shorter = shares[(shares["side"] == TRAINING) & (shares["mode"] != full)]
    texts = shares["run"].isin(shorter["run"]).map({True: SHORTER, False: ""})
    shares = shares.assign(bar=_bar_names(shares), text=texts)

    def panel(rows: pd.DataFrame, absent: pd.DataFrame) -> panels.Spec:
        every = pd.concat([rows, absent])
        names = list(dict.fromkeys(_bar_names(run_selection.sorted_by_size(every, runs))))[:MAX_BARS]
        sides = [side for side in SIDES if side in set(every["side"])]
        return panels.row(*[
            _panel(rows[rows["side"] == side], absent[absent["side"] == side], names, x, fills, side == sides[0])
            .properties(title=alt.TitleParams(_title(side, full), frame="group"))
            for side in sides
        ], spacing=panels.GAP_PX)  # fmt: skip

    notes = [f"The {terms.time} of a step is the sum over {terms.kernels} and memory operations; bars sum to 100 %."]
    if len(shorter):
        notes.append(f"{SHORTER} {' or '.join(dimensions.MODES[mode] for mode in dict.fromkeys(shorter['mode']))}.")
    if shares["bar"].nunique() > MAX_BARS:
        notes.append(f"At most {MAX_BARS} models and contexts are drawn; the table has all.")
    frame = panels.Frame(LEADING_KEYS, f"No capture holds {terms.kernels}, so their classes have no shares.")
    title = f"{terms.kernel.capitalize()} classes as shares of the time of all {terms.kernels}"
    return frame.drawing(shares, declared, missing, panel, notes, title=title)


def _bar_names(rows: pd.DataFrame) -> list[str]:
    return [f"{model} · {context}" for model, context in zip(rows["model"], rows["context_length"], strict=True)]


def _title(side: str, full: str) -> str:
    return f"{side} ({dimensions.MODES[FORWARD if side == INFERENCE else full]})"


def _panel(
    shares: pd.DataFrame, missing: pd.DataFrame, names: list[str], x: alt.X, fills: alt.Fill, labelled: bool
) -> alt.LayerChart:
    rows = shares[shares["bar"].isin(names)].drop(columns="mode")
    tooltip = marks.tooltip(rows, ("family", "family"), ("share", "share", marks.SHARE))
    axes = {"x": x, "y": marks.bar_axis(names, labelled)}
    layers = [marks.bars(rows, axes, fills, tooltip), _percentages(rows, axes), *_crosses(rows, missing, names, axes)]
    return alt.layer(*layers, height=alt.Step(marks.BAR_PX), width=WIDTH_PX)


def _percentages(shares: pd.DataFrame, channels: dict) -> alt.Chart:
    """The percentages in the bars that are wide enough for them."""
    wide = shares[shares["share"] >= LEAST_LABELLED]
    wide = wide.assign(
        start=(wide["start"] + wide["end"]) / 2,
        text=[f"{100 * share:.0f}" for share in wide["share"]],
        ink=["white" if part_style(name).color in DARK else "black" for name in wide["family"]],
    )
    ink = alt.Color("ink:N", scale=None, legend=None)
    return alt.Chart(wide).mark_text(fontSize=SMALLEST).encode(**channels, text="text:N", color=ink)


def _crosses(shares: pd.DataFrame, missing: pd.DataFrame, names: list[str], channels: dict) -> list[alt.Chart]:
    """Marks for missing bars: a cross and the status, with the reason on hover; or that the grid has no such run."""
    texts = missing["status"].replace(run_selection.STATUS_WORDS)
    failed = missing.assign(bar=_bar_names(missing), text=texts, start=0.02)
    failed = failed[failed["bar"].isin(names)].drop(columns="mode")
    present = {*shares["bar"], *failed["bar"]}
    absent = pd.DataFrame({"bar": [name for name in names if name not in present]})
    absent = absent.assign(text="not in the grid", start=0.02)
    why = marks.tooltip(failed, ("text", "no results"), ("reason", "reason"))
    crossed = alt.Chart(failed).encode(**channels, tooltip=why)
    blank = alt.Chart(absent).mark_text(align="left", fontSize=SMALL, color=SOFT).encode(**channels, text="text:N")
    crosses = [
        crossed.mark_point(shape=CROSS, size=25, strokeWidth=1.5, color=INK),
        crossed.mark_text(align="left", dx=8, fontSize=SMALL).encode(text="text:N"),
    ]
    return (crosses if len(failed) else []) + ([blank] if len(absent) else [])


def result_class_shares(tables: panels.Tables) -> str:
    """The share of matrix multiplies in inference and in training."""
    shares = family_shares(tables["runs"], tables["class_shares"])
    matmul = shares[shares["family"] == MATMUL]
    share_by_side = {side: matmul[matmul["side"] == side]["share"] for side in SIDES}
    parts = [f"{interval(rows, percent)} in {side}" for side, rows in share_by_side.items() if len(rows)]
    time = run_selection.device_words(tables["runs"]).time
    return f"Of the {time}, matrix multiplies take {', '.join(parts)}" if parts else ""


FIGURES = (
    panels.Figure(
        "class_shares", "Kernel classes as shares of the time of all kernels", draw_class_shares, result_class_shares,
        tables=("runs", "class_shares"),
    ),
)  # fmt: skip
