"""Figure of (b): the kernels with the most time in the run that shows most."""

from __future__ import annotations

import altair as alt
import pandas as pd

from kernel_tables.kernel_names.short import short_names
from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import Spec, column
from profile_grid.figures.shown import models_in_order, without_figures, words
from profile_grid.figures.splitting import Group, fitting, stacked
from profile_grid.figures.theme import SMALLEST, WIDTH
from profile_grid.quantities import count, percent, significant
from profile_grid.results.results import COMPLETE
from profile_grid.study.dimensions import (
    CONTEXT_LENGTH,
    FULLEST_FIRST,
    KEYS,
    LEADING,
    MODE,
    MODEL,
    MODES,
    keys_without,
    title_of,
)
from profile_grid.study.stages import CAPTURE
from profile_grid.tables.apart import shown_dimensions
from profile_grid.tables.classes import family
from profile_grid.tables.measured import Words, names_of_told_kernels
from profile_grid.tables.names import FORWARD

SHOWN = (MODEL.key, CONTEXT_LENGTH.key, MODE.key)
COLUMNS = [*LEADING, "scope", "rank", "kernel", "class", "family", "launches", "time_ms", "share"]
WHOLE = "all phases"
KERNELS_DRAWN = 10
KERNELS_TOLD, RUNS_TOLD = 3, 3
BAR_PX, TEXT_PX, LEAST_PX = 17, 130, 260  # of a bar, of the text beside the longest, of the longest with its text
CHARACTER_PX = 5.7  # of a name, on the mean


def largest_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The run that shows most, of those captured whole: of the fullest mode, the largest model, the longest context.

    One for each combination of what the figure does not show."""
    complete = runs[runs[CAPTURE.status_column] == COMPLETE]
    order = {model: position for position, model in enumerate(models_in_order(runs))}
    mode = {mode: -position for position, mode in enumerate(FULLEST_FIRST)}
    ranked = complete.assign(_mode=complete["mode"].map(mode), _model=complete["model"].map(order))
    ranked = ranked.sort_values(["_mode", "_model", "context_length"], ascending=False, kind="stable")
    largest = ranked.drop_duplicates(keys_without(*SHOWN))
    return runs[runs["run"].isin(largest["run"])]


def top_kernels(runs: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """The kernels with the most time of the largest runs, by `scope`: the forward pass, and all phases if it has more.

    `rank`, `time_ms` and `launches` per step, `share` of the scope, class and family; longest first."""
    found = []
    for lead in largest_runs(runs)[list(LEADING)].to_dict("records"):
        own = kernels[(kernels["run"] == lead["run"]) & (kernels["step"] >= 0)]
        forward, steps = own[own["phase"] == FORWARD], own["step"].nunique()
        scopes = ({FORWARD: forward} if len(forward) else {}) | ({WHOLE: own} if len(own) > len(forward) else {})
        found += [_longest(rows, steps).assign(**lead, scope=scope) for scope, rows in scopes.items()]
    return pd.concat(found, ignore_index=True)[COLUMNS] if found else pd.DataFrame(columns=COLUMNS)


def _longest(kernels: pd.DataFrame, steps: int) -> pd.DataFrame:
    """The kernels with the most time among these rows of so many steps."""
    sums = kernels.groupby(["kernel", "class"], sort=False, observed=True)[["total_ns", "launches"]].sum().reset_index()
    sums = sums.astype({"kernel": "str", "class": "str"})
    table = sums.assign(
        share=sums["total_ns"] / max(sums["total_ns"].sum(), 1),
        time_ms=sums["total_ns"] / 1e6 / steps,
        launches=sums["launches"] / steps,
        family=sums["class"].map(family),
    )
    table = table.sort_values(["total_ns", "kernel"], ascending=[False, True]).head(KERNELS_DRAWN)
    return table.assign(rank=range(1, len(table) + 1))


def draw_top_kernels(tables: Tables) -> Drawing:
    """Bars by short name for the forward pass and for the whole step, one below the other.

    The legend has the full names, since a short one is told apart only from those it stands beside."""
    runs, named = tables["runs"], words(tables["runs"])
    top = top_kernels(runs, tables["kernels"])
    if top.empty:
        missing = marks.missing_notes(without_figures(runs, CAPTURE))
        return Drawing(reason=f"No capture holds {named.kernels}.", notes=tuple(missing))
    short = short_names(top["kernel"], names_of_told_kernels(tables))
    top = top.assign(bar=top["kernel"].map(short), text=_texts(top))
    room = CHARACTER_PX * int(top["bar"].str.len().max())
    fills = marks.family_fills(top["family"])
    chosen = runs[runs["run"].isin(top["run"])]
    told = shown_dimensions(chosen, SHOWN)
    each = [Group(title_of(run, told), chosen[chosen["run"] == run["run"]]) for run in chosen.to_dict("records")]
    groups, left_out = fitting(each)

    def panels(group: Group) -> Spec:
        title = {FORWARD: "forward pass", WHOLE: f"all of one {MODES[group.runs['mode'].iloc[0]]}"}
        scopes = group.of(top).drop(columns=list(KEYS)).groupby("scope", sort=False)
        return column(*[_bars(rows, title[of], fills, named, room) for of, rows in scopes], spacing=18)

    legend = tuple(f"{short[kernel]}: {kernel}" for kernel in dict.fromkeys(top["kernel"]) if short[kernel] != kernel)
    title = f"The {named.kernels} with the most time"
    return Drawing(stacked(groups, panels), tuple(left_out), legend, title=title)


def _texts(top: pd.DataFrame) -> list[str]:
    rows = top.itertuples(index=False)
    return [f"{significant(one.time_ms)} ms, {percent(one.share)}, {count(one.launches)}×" for one in rows]


def _bars(top: pd.DataFrame, title: str, fills: alt.Fill, named: Words, names_px: float) -> alt.LayerChart:
    """The bars of one scope, in the width that names of so many pixels leave."""
    width = max(WIDTH - names_px, LEAST_PX)
    room = alt.Scale(domain=[0, max(top["time_ms"].max(), 1e-9) * width / (width - TEXT_PX)], nice=False)
    axis = marks.name_axis(minExtent=names_px, maxExtent=names_px)
    base = alt.Chart(top, title=marks.panel_title(title), width=width, height=alt.Step(BAR_PX)).encode(
        x=alt.X("time_ms:Q", scale=room, axis=alt.Axis(title=f"{named.time} per step (ms)", tickCount=5)),
        y=alt.Y("bar:N", scale=alt.Scale(domain=list(top["bar"])), axis=axis),
        tooltip=marks.tooltip(
            top, ("kernel", named.kernel), ("class", "class"), ("time_ms", "per step (ms)", marks.DIGITS),
            ("share", "share", marks.SHARE), ("launches", "launches per step", ",.1~f"),
        ),
    )  # fmt: skip
    bars = base.mark_bar().encode(fill=fills)
    return alt.layer(bars, base.mark_text(align="left", dx=4, fontSize=SMALLEST + 1).encode(text="text:N"))


def caption_top_kernels(tables: Tables) -> str:
    """What the first kernel, and the first three, take of the step of the largest run."""
    runs = tables["runs"]
    top = top_kernels(runs, tables["kernels"])
    if top.empty:
        return f"No capture holds {words(runs).kernels}."
    widest = [own[own["scope"] == own["scope"].iloc[-1]] for _, own in top.groupby("run", sort=False)]
    return " ".join(_told(own, words(runs)) for own in widest[:RUNS_TOLD])


def _told(top: pd.DataFrame, named: Words) -> str:
    shares = top["share"].head(KERNELS_TOLD)
    return (
        f"Of {top['run'].iloc[0]}: the first {named.kernel} alone takes {percent(shares.iloc[0])} of the {named.time}, "
        f"the first {len(shares)} {percent(shares.sum())}."
    )


FIGURES = (
    Figure(
        "top_kernels", "The kernels with the most time", draw_top_kernels, caption_top_kernels,
        tables=("runs", "kernels", "top_kernels"),
    ),
)  # fmt: skip
