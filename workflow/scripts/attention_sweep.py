"""From cells of attention alone to a table that compares every variant with eager attention, and to its figure."""

import altair as alt
import pandas as pd

from workflow import charts
from workflow.tables import read_tables, write_tables


def main(inputs: list[str], outputs: list[str]) -> None:
    tables = read_tables(inputs)
    table = compare_cells(tables["attention_cells"])
    write_tables({"attention_sweep": table}, outputs)
    charts.save_all({"attention_sweep": draw(table, tables["runs"])}, outputs)


def compare_cells(cells: pd.DataFrame) -> pd.DataFrame:
    table = cells.copy()
    table["variant"] = table["attention"].where(table["compile"] == "off", "compiled")
    table["both_ms"] = (table["forward_ms"] + table["backward_ms"]).where(table["status"] == "complete")
    alike = ["head_dim", "context_length", "precision", "batch_size"]  # cells that agree in these differ in the variant
    eager = table.loc[table["variant"] == "eager", [*alike, "both_ms"]].rename(columns={"both_ms": "eager_ms"})
    table = table.merge(eager, on=alike, how="left", validate="many_to_one")
    table["speed_up"] = table["eager_ms"] / table["both_ms"]
    errors = table[["output_error", "gradient_error"]].astype("float64")
    table["is_wrong"] = errors.max(axis=1) > 0.1  # by rounding: less
    return table.assign(is_typical=table.index == find_typical(table))


def find_typical(table: pd.DataFrame) -> int | None:
    """The row of the lead: the fastest variant with right results at the usual head size (64 or the smallest), the last
    precision and batch size of the grid, and the middle one of the context lengths; beside eager attention, if it has
    such a cell."""
    rows = table[table["both_ms"].notna() & ~table["is_wrong"]]
    if rows.empty:
        return None
    compared = rows[rows["speed_up"].notna() & (rows["variant"] != "eager")]
    rows = rows if compared.empty else compared
    sizes = rows["head_dim"].to_list()
    wanted = {"head_dim": 64 if 64 in sizes else min(sizes)}
    wanted |= {key: rows[key].iloc[-1] for key in ("precision", "batch_size")}
    for key, value in wanted.items():
        rows = rows[rows[key] == value] if (rows[key] == value).any() else rows
    lengths = sorted(rows["context_length"].unique())
    return rows.loc[rows["context_length"] == lengths[len(lengths) // 2], "both_ms"].idxmin()


def draw(table: pd.DataFrame, runs: pd.DataFrame) -> alt.TopLevelMixin:
    """A panel per precision: time of both passes by context length, a line per variant, at the lead's head size."""
    if not table["is_typical"].any():
        return charts.text_chart("No pass was measured to its end.")
    typical = table[table["is_typical"]].iloc[0]
    rows = table[(table["head_dim"] == typical["head_dim"]) & table["both_ms"].notna()]
    axis = alt.Axis(values=sorted(rows["context_length"].unique()), format="d")
    lines = alt.Chart(rows).mark_line(point=alt.OverlayMarkDef(size=40)).encode(
        x=alt.X("context_length:Q", title="context length (tokens)", axis=axis, scale=alt.Scale(type="log", base=2)),
        y=charts.log_axis(alt.Y, "both_ms", "forward + backward pass (ms)"),
        color=charts.series_color(rows, "variant"), shape=charts.series_shape(rows, "variant"),
    ).properties(width=charts.WIDTH // max(2, rows["precision"].nunique()) - 60, height=260)  # fmt: skip
    chart = lines.facet(alt.Column("precision:N", title=None, sort=list(rows["precision"].unique())))
    result = f"{typical['variant']} attention takes {typical['both_ms']:.3g} ms"
    if pd.notna(typical["speed_up"]):
        result = f"{typical['variant']} attention is {typical['speed_up']:.3g} times as fast as eager attention"
    result += f" at context {typical['context_length']} in {typical['precision']}"
    batches = ", ".join(map(str, rows["batch_size"].unique()))
    note = f"Head size {typical['head_dim']}, batch {batches}, one head, causal mask."
    device = f"Measured on {' and '.join(runs['device_name'].dropna().unique())}."
    return charts.titled(chart, result, "time of attention alone; both axes are logarithmic", note, device)


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
