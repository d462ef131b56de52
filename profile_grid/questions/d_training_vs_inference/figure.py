"""Figure of (d): what each family of kernels takes of a step, inference beside training."""

from __future__ import annotations

import altair as alt
import pandas as pd

from kernel_tables.page.colors import DARK
from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import Spec, row
from profile_grid.figures.shown import fullest_runs, models_in_order, with_dimensions, without_figures, words
from profile_grid.figures.splitting import Group, split, stacked
from profile_grid.figures.theme import CROSS, GROUND, INK, SMALL, SMALLEST, SOFT, family_style, in_drawing_order
from profile_grid.quantities import interval, percent
from profile_grid.study.dimensions import CONTEXT_LENGTH, MODE, MODEL, MODES
from profile_grid.study.stages import CAPTURE
from profile_grid.tables.classes import MATMUL, family
from profile_grid.tables.names import ALL_PHASES, FORWARD

SHOWN = (MODEL.key, CONTEXT_LENGTH.key, MODE.key)
INFERENCE, TRAINING = SIDES = ("inference", "training")
SMALLEST_LABEL = 0.06
MOST_BARS = 60  # below each other
BAR_PX, WIDTH_PX = 17, 295


def sides_of(runs: pd.DataFrame) -> pd.DataFrame:
    """The declared runs with their `side`: mode forward, and the fullest training mode of each configuration."""
    inference = runs["mode"] == FORWARD
    return pd.concat([runs[inference].assign(side=INFERENCE), fullest_runs(runs[~inference]).assign(side=TRAINING)])


def family_shares(runs: pd.DataFrame, shares: pd.DataFrame) -> pd.DataFrame:
    """One row per run of a side and family of classes: its `share` of the step's time, and where its bar stands: from
    `start` to `end`, of one."""
    drawn = shares[shares["phase"] == ALL_PHASES]
    drawn = drawn.assign(family=drawn["class"].astype("str").map(family))
    sums = drawn.groupby(["run", "family"], sort=False)["share"].sum().reset_index()
    order = {name: position for position, name in enumerate(in_drawing_order(sums["family"]))}
    sums = sums.merge(sides_of(runs)[["run", "side"]], on="run", how="inner", validate="many_to_one")
    sums = sums.sort_values("family", key=lambda names: names.map(order), kind="stable")
    end = sums.groupby("run")["share"].cumsum()
    return with_dimensions(sums.assign(start=end - sums["share"], end=end), runs)


def draw_class_shares(tables: Tables) -> Drawing:
    """A stacked bar per model and context: the forward pass of inference on the left, training on the right."""
    runs, named = tables["runs"], words(tables["runs"])
    declared, shares = sides_of(runs), family_shares(runs, tables["class_shares"])
    missing = without_figures(declared, CAPTURE)
    if shares.empty:
        reason = f"No capture holds {named.kernels}, so their classes have no shares."
        return Drawing(reason=reason, notes=tuple(marks.missing_notes(missing)))
    sides = [side for side in SIDES if side in set(declared["side"])]
    fills = marks.family_fills(shares["family"])
    groups, left_out = split(declared, SHOWN)
    cells = {group.title: _cells(group.runs, models_in_order(runs)) for group in groups}
    share = alt.Axis(title=f"share of the {named.time} of a step", format="%", values=[0, 0.2, 0.4, 0.6, 0.8, 1])
    x = alt.X("start:Q", scale=alt.Scale(domain=[0, 1]), axis=share)

    def panels(group: Group) -> Spec:
        drawn = []
        for side in sides:
            own, bars = group.runs[group.runs["side"] == side], group.of(shares[shares["side"] == side])
            lines = cells[group.title][:MOST_BARS]
            place = {"x": x, "y": _bars_axis(lines, named=side == sides[0])}
            panel = _panel(own, bars, lines, fills, place)
            drawn.append(panel.properties(title=marks.panel_title(_title(side, own)), width=WIDTH_PX))
        return row(*drawn, spacing=14)

    notes = [f"The {named.time} of a step is the sum over {named.kernels} and memory operations; bars sum to 100 %."]
    if (longest := max(map(len, cells.values()))) > MOST_BARS:
        notes.append(f"Of {longest} models and contexts the first {MOST_BARS} are drawn; the table has all.")
    title = f"{named.kernel.capitalize()} classes as shares of the time of all {named.kernels}"
    return Drawing(stacked(groups, panels), (*notes, *left_out, *marks.missing_notes(missing)), title=title)


def _cells(runs: pd.DataFrame, models: list[str]) -> list[str]:
    """The models and contexts of these runs, the smallest model first."""
    rank = runs["model"].map({model: position for position, model in enumerate(models)})
    return list(dict.fromkeys(_cell(runs.assign(_rank=rank).sort_values(["_rank", "context_length"]))))


def _cell(rows: pd.DataFrame) -> list[str]:
    return [f"{model} · {context}" for model, context in zip(rows["model"], rows["context_length"], strict=True)]


def _bars_axis(cells: list[str], named: bool) -> alt.Y:
    return alt.Y("cell:N", scale=alt.Scale(domain=cells, paddingInner=0.22), axis=marks.name_axis(labels=named))


def _title(side: str, runs: pd.DataFrame) -> str:
    modes = " or ".join(name for mode, name in MODES.items() if mode in set(runs["mode"]))
    return f"{side} ({modes})" if modes else side


def _panel(runs: pd.DataFrame, shares: pd.DataFrame, cells: list[str], fills: alt.Fill, place: dict) -> alt.LayerChart:
    own = shares.assign(cell=_cell(shares)).drop(columns="mode")
    own = own[own["cell"].isin(cells)]
    bars = alt.Chart(own).mark_bar(stroke=GROUND, strokeWidth=0.5).encode(
        **place, x2="end", fill=fills,
        tooltip=marks.tooltip(own, ("family", "family"), ("share", "share", marks.SHARE)),
    )  # fmt: skip
    layers = [bars, _percentages(own, place), *_instead(runs, cells, place)]
    return alt.layer(*layers, height=alt.Step(BAR_PX))


def _percentages(shares: pd.DataFrame, place: dict) -> alt.Chart:
    """The percentages in the bars that have room for them."""
    wide = shares[shares["share"] >= SMALLEST_LABEL]
    wide = wide.assign(
        start=(wide["start"] + wide["end"]) / 2,
        text=[f"{100 * share:.0f}" for share in wide["share"]],
        ink=["white" if family_style(name)[0] in DARK else "black" for name in wide["family"]],
    )
    ink = alt.Color("ink:N", scale=None, legend=None)
    return alt.Chart(wide).mark_text(fontSize=SMALLEST).encode(**place, text="text:N", color=ink)


def _instead(runs: pd.DataFrame, cells: list[str], place: dict) -> list[alt.Chart]:
    """What stands in the place of a bar: a cross and why the run has no figures, or that the grid does not have it."""
    missing = without_figures(runs, CAPTURE).drop(columns="mode")
    missing = missing.assign(cell=_cell(missing), text=missing["status"].map(marks.status_words), start=0.02)
    missing = missing[missing["cell"].isin(cells)]
    declared = set(_cell(runs))
    absent = pd.DataFrame({"cell": [cell for cell in cells if cell not in declared]})
    absent = absent.assign(text="not in the grid", start=0.02)
    why = marks.tooltip(missing, ("text", "no figures"), ("reason", "reason"))
    crossed = alt.Chart(missing).encode(**place, tooltip=why)
    blank = alt.Chart(absent).mark_text(align="left", fontSize=SMALL, color=SOFT).encode(**place, text="text:N")
    crosses = [
        crossed.mark_point(shape=CROSS, size=25, strokeWidth=1.5, color=INK),
        crossed.mark_text(align="left", dx=8, fontSize=SMALL).encode(text="text:N"),
    ]
    return (crosses if len(missing) else []) + ([blank] if len(absent) else [])


def caption_class_shares(tables: Tables) -> str:
    """What matrix multiplies take in inference and in training."""
    runs = tables["runs"]
    shares = family_shares(runs, tables["class_shares"])
    matmul = shares[shares["family"] == MATMUL]
    of_sides = {side: matmul[matmul["side"] == side]["share"] for side in SIDES}
    parts = [f"{interval(own, percent)} in {side}" for side, own in of_sides.items() if len(own)]
    text = f"Matrix multiplies take {', '.join(parts)}." if parts else "No capture holds matrix multiplies."
    return f"{text} {marks.missing_count(without_figures(sides_of(runs), CAPTURE))}".strip()


FIGURES = (
    Figure(
        "class_shares", "Kernel classes as shares of the time of all kernels", draw_class_shares, caption_class_shares,
        tables=("runs", "class_shares"),
    ),
)  # fmt: skip
