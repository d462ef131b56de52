"""Figure of attention alone: forward and backward pass together against context length, a line per variant."""

import pandas as pd

from profile_grid.figures import marks, theme
from profile_grid.figures.panels import AXIS_PX, Drawing, Figure, Frame, Panel, Tables, column
from profile_grid.quantities import counted, percent, significant
from profile_grid.questions.attention_sweep.table import pairs_with_eager
from profile_grid.results.results import COMPLETE
from profile_grid.study.dimensions import ATTENTION, COMPILE, CONTEXT_LENGTH, HEAD_DIM
from profile_grid.tables.wording import listed

SHOWN_IN_PANEL = (CONTEXT_LENGTH.key, COMPILE.key, ATTENTION.key)  # the x axis; the lines
PANELS_PER_LINE = 2
PANEL_PX = (theme.WIDTH // PANELS_PER_LINE - AXIS_PX, 230)  # width and height
USUAL_HEAD_SIZE = 64
TIME, OF_PEAK = ("both_ms", "both_std_ms"), ("of_peak", "of_peak_std")  # columns: a mean and its standard deviation


def cells_of_one_head_size(tables: Tables) -> pd.DataFrame:
    """The cells of one head size: the usual one if it was measured, else the smallest. The columns of TIME are for both
    passes together. They and OF_PEAK are of single calls if these were timed; otherwise OF_PEAK is NaN."""
    cells = tables["attention_sweep"]
    sizes = sorted(set(cells[HEAD_DIM.key]))
    of_size = cells[cells[HEAD_DIM.key] == (USUAL_HEAD_SIZE if USUAL_HEAD_SIZE in sizes else sizes[0])]
    if of_size["bench_both_ms"].notna().any():
        relative = of_size["bench_both_std_ms"] / of_size["bench_both_ms"]
        return of_size.assign(
            both_ms=of_size["bench_both_ms"], both_std_ms=of_size["bench_both_std_ms"],
            of_peak=of_size["bench_both_of_peak"], of_peak_std=relative * of_size["bench_both_of_peak"],
        )  # fmt: skip
    spread = (of_size["forward_std_ms"] ** 2 + of_size["backward_std_ms"] ** 2) ** 0.5
    sums = of_size["forward_ms"] + of_size["backward_ms"]
    return of_size.assign(both_ms=sums, both_std_ms=spread, of_peak=float("nan"), of_peak_std=float("nan"))


def draw(tables: Tables) -> Drawing:
    """A panel per precision: ms against context length, both logarithmic; below it the share of the peak, if known."""
    cells = cells_of_one_head_size(tables)
    series = theme.Series("variant", tuple(sorted(set(cells["variant"]), key=_place)))
    contexts = theme.ContextAxis.of(cells["context_length"])

    def panel(rows: pd.DataFrame, panel_missing: pd.DataFrame) -> Panel:
        crosses = panel_missing[panel_missing["variant"].isin(rows["variant"])]  # others have no line here
        tooltip = marks.tooltip(
            rows, ("variant", "variant"), ("head_dim", "head size", "d"), ("forward_ms", "forward (ms)", marks.DIGITS),
            ("backward_ms", "backward (ms)", marks.DIGITS),
        )  # fmt: skip
        title = "forward + backward (ms)"
        times = marks.against_context(rows, crosses, contexts, title, series, TIME, tooltip, PANEL_PX)
        if rows["of_peak"].isna().all():
            return times
        percents, title = rows.assign(**{name: 100 * rows[name] for name in OF_PEAK}), "share of the peak FLOP/s (%)"
        no_crosses = crosses.iloc[:0]  # the chart above has them
        shares = marks.against_context(percents, no_crosses, contexts, title, series, OF_PEAK, tooltip, PANEL_PX)
        return column(times, shares, spacing=8)

    has_single_calls = cells["bench_both_ms"].notna().any()
    timing = "Single calls, with an empty L2 cache" if has_single_calls else "Times include waiting for the device"
    sizes = tables["attention_sweep"][HEAD_DIM.key].nunique()
    note = (
        f"Head size {cells[HEAD_DIM.key].iloc[0]}; {counted(sizes, 'head size')} in the table. {timing}; ± is"
        " the standard deviation between passes. eager: separate operations; compiled: the same by torch.compile."
    )
    measured, missing = cells[cells["both_ms"].notna()], cells[cells["status"] != COMPLETE]
    frame = Frame(SHOWN_IN_PANEL, "No cell was measured to its end.", columns=PANELS_PER_LINE)
    return frame.drawing(measured, tables["runs"], _with_names(missing, cells), panel, (note,))


def _place(variant: str) -> tuple[int, str]:
    """Where a variant comes among the others: functions of the user come last."""
    return theme.STYLE_INDEX.get(variant, len(theme.STYLE_INDEX)), variant


def _with_names(missing: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """The cells without results. Those of one variant and precision have the same `name`: "flash in fp32", or "flash in
    fp32 at 16384" if other cells of this variant and precision have results."""
    keys = ["variant", "precision"]
    cell_counts = cells.groupby(keys).size()
    names = {}
    for (variant, precision), lengths in missing.groupby(keys)["context_length"]:
        has_results = len(lengths) < cell_counts[variant, precision]
        at_lengths = f" at {', '.join(map(str, lengths))}" if has_results else ""
        names[variant, precision] = f"{variant} in {precision}{at_lengths}"
    return missing.assign(name=[names[key] for key in missing[keys].itertuples(index=False, name=None)])


def result(tables: Tables) -> str:
    """By precision, the variant that comes nearest to the peak. If no share of the peak is known: the largest speed-up
    over eager attention at the longest context where both were timed."""
    cells = cells_of_one_head_size(tables)
    if cells["of_peak"].notna().any():
        nearest = cells.loc[cells.groupby("precision", sort=False)["of_peak"].idxmax()]
        texts = [f"{row.variant} {percent(row.of_peak)} in {row.precision}" for row in nearest.itertuples()]
        head_size = cells[HEAD_DIM.key].iloc[0]
        return f"Largest share of the peak FLOP/s with head size {head_size}: {listed(texts)}"
    pairs = pairs_with_eager(cells).dropna(subset="gain")
    if pairs.empty:
        return ""
    longest = pairs[pairs["context_length"] == pairs["context_length"].max()]
    best = longest.loc[longest["gain"].idxmax()]
    factor, config = significant(best["gain"]), f"context {best['context_length']} in {best['precision']}"
    return f"At {config} with head size {best['head_dim']}, {best['variant']} is {factor} times as fast as eager"


FIGURES = (
    Figure(
        "attention_sweep", "Time of attention alone, forward and backward pass, against context length", draw, result,
        tables=("runs", "attention_sweep"),
    ),
)  # fmt: skip
