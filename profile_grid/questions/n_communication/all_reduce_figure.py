"""Figure of (n): the bus bandwidth of all-reduce without other work against its size, a line per number of GPUs."""

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.panels import Frame
from profile_grid.figures.run_selection import without_figures
from profile_grid.figures.scales import Log, Series
from profile_grid.figures.theme import SMALL, WIDTH
from profile_grid.quantities import interval, significant
from profile_grid.study.dimensions import GPUS
from profile_grid.study.stages import ALL_REDUCE as STAGE
from profile_grid.study.stages import NOT_ASKED

ENDS_PX, HEIGHT_PX = 120, 200
NOT_MEASURED = "No run measured all-reduce without a model (stages: [all_reduce])."


def draw(tables: Tables) -> Drawing:
    """Points at the mean times; the last bandwidth after each line."""
    runs, rows = tables["runs"], tables["communication_all_reduce"]
    stage_runs = runs[runs[STAGE.status_column] != NOT_ASKED]
    return Frame((GPUS.key,), NOT_MEASURED).drawing(rows, runs, without_figures(stage_runs, STAGE), _panel)


def _panel(rows: pd.DataFrame, _: pd.DataFrame) -> alt.LayerChart:
    rows = rows.assign(megabytes=rows["bytes"] / 1e6, ranks=[GPUS.words(count) for count in rows[GPUS.key]])
    x, y = Log.around(rows["megabytes"], WIDTH - ENDS_PX), Log.around(rows["bus_gb_per_s"], HEIGHT_PX)
    series = Series("ranks", tuple(GPUS.words(count) for count in sorted(set(rows[GPUS.key]))))
    tooltip = marks.tooltip(
        rows, ("ranks", "GPUs"), ("megabytes", "MB", marks.DIGITS), ("mean_ms", "ms", marks.DIGITS),
        ("bus_gb_per_s", "bus (GB/s)", marks.DIGITS),
    )  # fmt: skip
    channels = {
        "x": alt.X("megabytes:Q", scale=x.scale, axis=x.axis("size (MB)")),
        "y": alt.Y("bus_gb_per_s:Q", scale=y.scale, axis=y.axis("bus bandwidth (GB/s)")),
    }
    base = alt.Chart(rows).encode(**channels, color=series.color())
    last = rows.sort_values("megabytes").drop_duplicates("ranks", keep="last").sort_values("bus_gb_per_s")
    texts = last.assign(text=[f"{significant(rate)} GB/s" for rate in last["bus_gb_per_s"]])
    ends = alt.Chart(_spread_out(texts, y)).mark_text(align="left", dx=8, fontSize=SMALL)
    return alt.layer(
        base.mark_line().encode(strokeDash=series.dash()),
        base.mark_point(filled=True, size=30).encode(shape=series.shape(), tooltip=tooltip),
        ends.encode(x=channels["x"], y=alt.Y("place:Q", scale=y.scale), color=series.color(), text="text:N"),
        width=WIDTH - ENDS_PX, height=HEIGHT_PX,
    )  # fmt: skip


def _spread_out(texts: pd.DataFrame, y: Log) -> pd.DataFrame:
    """The texts with a `place` on the axis, each at least one line above the previous."""
    places: list[float] = []
    for rate in texts["bus_gb_per_s"]:
        step = (y.high / y.low) ** (marks.LINE_PX / y.length_px)
        places.append(max(rate, places[-1] * step) if places else rate)
    return texts.assign(place=places)


def result(tables: Tables) -> str:
    """The bandwidth of the largest size, by number of GPUs."""
    rows = tables["communication_all_reduce"]
    if rows.empty:
        return ""
    largest = rows[rows["bytes"] == rows["bytes"].max()]
    parts = [
        f"{interval(sizes['bus_gb_per_s'], significant)} GB/s {GPUS.words(count)}"
        for count, sizes in largest.groupby(GPUS.key)
    ]
    return f"At its largest size, all-reduce without a model reaches {', '.join(parts)} on the bus"


ALL_REDUCE = Figure(
    "all_reduce",
    "Bandwidth of all-reduce without a model, by size",
    draw,
    result,
    tables=("runs", "communication_all_reduce"),
)
