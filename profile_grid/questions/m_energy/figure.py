"""Figure of (m): the power of every run, in what idle power takes while the GPU waits and works, and what is above."""

from __future__ import annotations

import altair as alt
import pandas as pd

from kernel_tables.page.colors import GREY, PALE, VERMILLION
from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import Spec, alone
from profile_grid.figures.scales import legend
from profile_grid.figures.shown import without_figures
from profile_grid.figures.splitting import Group, split, stacked
from profile_grid.figures.theme import GROUND, SMALL, WIDTH, fill
from profile_grid.quantities import interval
from profile_grid.questions.m_energy.document import millijoules
from profile_grid.study.dimensions import MODE
from profile_grid.study.stages import ENERGY

SHOWN = ("model", "context_length", "mode", "precision")
BAR_PX, LABELS_PX, MOST_BARS = 17, 250, 40
STYLES = {"idle, waiting": (GREY, 1), "idle": (PALE, 0), "above idle": (VERMILLION, 0)}  # in the order of stacking
NOTHING = "The energy of no run was counted."


def draw(tables: Tables) -> Drawing:
    """A bar per run, its mean power; the number behind it is the energy of a token."""
    runs, use = tables["runs"], tables["energy_use"]
    notes = tuple(marks.missing_notes(without_figures(runs, ENERGY)))
    if use.empty:
        return Drawing(reason=NOTHING, notes=notes)
    rows = parts_of_power(use)
    groups, left_out = split(runs[runs["run"].isin(rows["run"])], SHOWN)

    def panels(group: Group) -> Spec:
        own = group.of(rows)
        bars = list(dict.fromkeys(own["bar"]))[:MOST_BARS]
        return alone(_panel(own[own["bar"].isin(bars)], bars).properties(width=WIDTH - LABELS_PX))

    if (longest := max(len(group.runs) for group in groups)) > MOST_BARS:
        left_out = [*left_out, f"Of {longest} runs the first {MOST_BARS} are drawn; the table has all."]
    return Drawing(stacked(groups, panels), (*left_out, *notes))


def parts_of_power(use: pd.DataFrame) -> pd.DataFrame:
    """One row per run and part of its power: `watts`, and `start` and `end` of its place in the bar."""
    waiting = use["waiting_share"].fillna(0.0)
    idle = use["idle_share"] * use["power_w"]
    parts = dict(zip(STYLES, (waiting * idle, (1 - waiting) * idle, use["power_w"] - idle), strict=True))
    named = use.assign(bar=[_bar(row) for row in use.itertuples()], order=range(len(use)))
    rows = pd.concat([named.assign(part=part, watts=watts) for part, watts in parts.items()], ignore_index=True)
    rows = rows.sort_values("order", kind="stable", ignore_index=True)
    end = rows.groupby("run", sort=False)["watts"].cumsum()
    return rows.assign(start=end - rows["watts"], end=end)[rows["watts"] > 0].drop(columns="order")


def _bar(row) -> str:
    return f"{row.model} · {row.context_length} · {MODE.name_of(row.mode)} · {row.precision}"


def _panel(rows: pd.DataFrame, bars: list[str]) -> alt.LayerChart:
    x = alt.X("start:Q", axis=alt.Axis(title="mean power while the model steps (W)"))
    place = {"x": x, "y": alt.Y("bar:N", scale=alt.Scale(domain=bars, paddingInner=0.22), axis=marks.name_axis())}
    shown = rows.assign(token=rows["joules_per_token"].map(millijoules))
    seen = marks.tooltip(shown, ("part", "part"), ("watts", "W", marks.DIGITS), ("token", "per token"))
    present = [part for part in STYLES if part in set(rows["part"])]
    scale = alt.Scale(domain=present, range=[fill(*STYLES[part]) for part in present])
    of_part = alt.Fill("part:N", scale=scale, legend=legend(present, symbolSize=marks.BAR_SYMBOL))
    bars_drawn = alt.Chart(shown).mark_bar(stroke=GROUND, strokeWidth=0.5)
    last = shown.drop_duplicates("run", keep="last")
    ends = last.assign(start=last["end"], text=last["token"] + " per token")
    behind = alt.Chart(ends).mark_text(align="left", dx=4, fontSize=SMALL).encode(**place, text="text:N")
    drawn = bars_drawn.encode(**place, x2="end", fill=of_part, tooltip=seen)
    return alt.layer(drawn, behind, height=alt.Step(BAR_PX))


def caption(tables: Tables) -> str:
    """The energy of a token, from the least to the most."""
    use = tables["energy_use"]
    if use.empty:
        return NOTHING
    return f"A token takes {interval(use['joules_per_token'], millijoules)}."


FIGURES = (
    Figure("energy", "Power while the model steps, and energy per token", draw, caption, tables=("runs", "energy_use")),
)
