"""Figure of attention alone: forward and backward pass together against context length, a line per variant."""

from __future__ import annotations

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import Spec, column, row
from profile_grid.figures.scales import Contexts, Log, Series
from profile_grid.figures.theme import WIDTH
from profile_grid.quantities import interval, ratio
from profile_grid.questions.attention_sweep.table import PASSES
from profile_grid.results.results import COMPLETE

HEIGHT_PX, AXIS_PX, COLUMNS = 150, 60, 2
SPLIT = ["precision", "batch_size"]


def draw(tables: Tables) -> Drawing:
    """A row of panels per precision, a panel per width of head: ms against context length, both logarithmic."""
    cells = tables["attention_sweep"]
    cells = cells.assign(both_ms=cells["forward_ms"] + cells["backward_ms"])
    cells["both_std_ms"] = (cells["forward_std_ms"] ** 2 + cells["backward_std_ms"] ** 2) ** 0.5
    if cells["both_ms"].isna().all():
        return Drawing(reason="No cell was measured to its end.")
    series = Series("variant", tuple(dict.fromkeys(cells["variant"])))
    contexts = Contexts.of(cells["context_length"])
    lines = [_row(own, contexts, series, _title(own, cells)) for _, own in cells.groupby(SPLIT, sort=False)]
    note = (
        "Forward and backward pass, the device waited for after each, ± the standard deviation between passes. eager:"
        " written out; compiled: the same by torch.compile."
    )
    return Drawing(column(*lines, spacing=22), (note, *marks.missing_notes(_without_figures(cells))))


def _without_figures(cells: pd.DataFrame) -> pd.DataFrame:
    """By status the variants that lack figures, each with the lengths at which it does: "eager in fp32 at 8192"."""
    several, rows = cells["batch_size"].nunique() > 1, []
    for (variant, precision, batch), own in cells.groupby(["variant", *SPLIT], sort=False):
        name = f"{variant} in {precision}{f', batch {batch}' if several else ''}"
        for status, missing in own[own["status"] != COMPLETE].groupby("status", sort=False):
            rows.append((status, f"{name} {_where(missing, own)}"))
    return pd.DataFrame(rows, columns=["status", "run"])


def _where(missing: pd.DataFrame, own: pd.DataFrame) -> str:
    """At which lengths some cells of a variant have no figures."""
    if len(missing) == len(own):
        return "at every length"
    lengths = missing.groupby("context_length").size()
    everywhere = (lengths == own.groupby("context_length").size().reindex(lengths.index)).all()
    return f"at {', '.join(map(str, lengths.index))}{'' if everywhere else ' in some widths'}"


def _title(own: pd.DataFrame, cells: pd.DataFrame) -> str:
    batch = f", batch {own['batch_size'].iloc[0]}" if cells["batch_size"].nunique() > 1 else ""
    return f"{own['precision'].iloc[0]}{batch}"


def _row(cells: pd.DataFrame, contexts: Contexts, series: Series, title: str) -> Spec:
    ends = marks.with_ends(cells, "both_ms", "both_std_ms", "both")
    missing = cells[cells["status"] != COMPLETE]
    y = Log.around(ends[["both_low", "both_ms", "both_high"]].to_numpy("float64").ravel(), HEIGHT_PX)
    widths = sorted(set(cells["head_dim"]))
    y = y.with_room(below_px=max(marks.room_px(missing[missing["head_dim"] == width]) for width in widths))
    panels = [
        _panel(ends[ends["head_dim"] == width], missing[missing["head_dim"] == width], contexts, y, series).properties(
            title=marks.panel_title(f"d = {width}"), width=WIDTH // COLUMNS - AXIS_PX, height=HEIGHT_PX
        )
        for width in widths
    ]
    lines = [row(*panels[first : first + COLUMNS], spacing=12) for first in range(0, len(panels), COLUMNS)]
    return column(*lines, spacing=12, title=alt.TitleParams(title, fontWeight="bold", frame="group"))


def _panel(cells: pd.DataFrame, missing: pd.DataFrame, contexts: Contexts, y: Log, series: Series) -> alt.LayerChart:
    own = cells[cells["both_ms"].notna()]
    axis = y.axis("forward + backward (ms)")
    base = alt.Chart(own).encode(x=contexts.x(), color=series.color())
    low, middle = (alt.Y(f"{name}:Q", scale=y.scale, axis=axis) for name in ("both_low", "both_ms"))
    seen = marks.tooltip(
        own, ("variant", "variant"), ("head_dim", "d", "d"), ("forward_ms", "forward (ms)", marks.DIGITS),
        ("backward_ms", "backward (ms)", marks.DIGITS),
    )  # fmt: skip
    layers = [
        base.mark_line().encode(y=middle, strokeDash=series.dash()),
        base.mark_rule().encode(y=low, y2="both_high"),
        base.mark_point(filled=True, size=30).encode(y=middle, shape=series.shape(), tooltip=seen),
    ]
    return alt.layer(*layers, *marks.missing_marks(missing, contexts, y, series, named="variant"))


def caption(tables: Tables) -> str:
    """The speed-ups of each variant over the written-out attention."""
    cells = tables["attention_sweep"]
    told = []
    for variant, own in cells[cells["forward_speed_up"].notna()].groupby("variant", sort=False):
        gains = [f"{interval(own[f'{which}_speed_up'], ratio)} {which}" for which in PASSES]
        told.append(f"{variant} {', '.join(gains)}")
    return (
        f"Times as fast as written out: {'; '.join(told)}." if told else "No two variants were measured at one place."
    )


FIGURES = (
    Figure(
        "attention_sweep", "Attention alone, forward and backward pass", draw, caption,
        tables=("runs", "attention_sweep"),
    ),
)  # fmt: skip
