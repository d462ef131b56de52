"""From cells of attention alone to a table that compares every variant with eager attention, and to its figure."""

from statistics import fmean, stdev

import altair as alt
import pandas as pd

from cs336_model.results import Attention
from workflow import charts
from workflow.tables import read_tables, write_tables


def main(inputs: list[str], outputs: list[str]) -> None:
    tables = read_tables(inputs)
    table = compare_cells(tables["attention_cells"])
    write_tables({"attention_sweep": table}, outputs)
    charts.save_all({"attention_sweep": draw(table, tables["runs"])}, outputs)


def list_cells(result: Attention) -> list[dict]:
    """The rows of a run in `attention_cells`, with the context length of each."""
    rows = []
    for cell in result.cells:
        row = {
            "context_length": cell.context_length, "head_dim": result.key.get("spec", {}).get("head_dim"),
            "status": cell.status, "reason": cell.reason, "passes": len(cell.forward_seconds),
            "memory_before_backward_bytes": cell.memory_before_backward_bytes, "peak_bytes": cell.peak_bytes,
            "compile_s": cell.compile_seconds, "output_error": cell.output_error, "gradient_error": cell.gradient_error,
        }  # fmt: skip
        for name, values in {"forward": cell.forward_seconds, "backward": cell.backward_seconds}.items():
            row[f"{name}_ms"] = 1e3 * fmean(values) if values else None
            row[f"{name}_std_ms"] = 1e3 * stdev(values) if len(values) > 1 else None
        rows.append(row)
    return rows


def compare_cells(cells: pd.DataFrame) -> pd.DataFrame:
    """The table `attention_sweep`."""
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
    """The row of the lead: the fastest variant with right results at the usual head size, the middle one of the context
    lengths, and the last precision of the grid; beside eager attention, if there is such a cell."""
    rows = table[table["both_ms"].notna() & ~table["is_wrong"] & (table["head_dim"] == choose_head(table))]
    compared = rows[rows["speed_up"].notna() & (rows["variant"] != "eager")]
    rows = compared if len(compared) else rows
    for key in ("precision", "batch_size"):
        rows = rows[rows[key] == rows[key].iloc[-1]] if len(rows) else rows
    lengths = sorted(rows["context_length"].unique())
    if not lengths:
        return None
    return rows.loc[rows["context_length"] == lengths[len(lengths) // 2], "both_ms"].idxmin()


def choose_head(table: pd.DataFrame) -> int | None:
    """The usual head size, 64, if it was measured; else the smallest."""
    sizes = sorted(table.loc[table["both_ms"].notna(), "head_dim"].unique())
    return 64 if 64 in sizes else next(iter(sizes), None)


def draw(table: pd.DataFrame, runs: pd.DataFrame) -> alt.TopLevelMixin:
    """A panel per precision: time of both passes against context length, a line per variant."""
    size = choose_head(table)
    if size is None:
        return charts.text_chart("No pass was measured to its end.")
    rows = table[(table["head_dim"] == size) & table["both_ms"].notna()]
    axis = alt.Axis(values=sorted(rows["context_length"].unique()), format="d")
    lines = alt.Chart(rows).mark_line(point=alt.OverlayMarkDef(size=40)).encode(
        x=alt.X("context_length:Q", title="context length (tokens)", axis=axis, scale=alt.Scale(type="log", base=2)),
        y=charts.log_axis(alt.Y, "both_ms", "forward + backward pass (ms)"),
        color=charts.series_color(rows, "variant"), shape=charts.series_shape(rows, "variant"),
    ).properties(width=charts.WIDTH // max(2, rows["precision"].nunique()) - 60, height=260)  # fmt: skip
    chart = lines.facet(alt.Column("precision:N", title=None, sort=list(rows["precision"].unique())))
    typical = table[table["is_typical"]]
    result = "Time of attention alone"
    if len(typical) and typical["speed_up"].notna().all():
        best = typical.iloc[0]
        result = f"{best['variant']} attention is {best['speed_up']:.3g} times as fast as eager attention"
        result += f" at context {best['context_length']} in {best['precision']}"
    note = f"Head size {size}, batch {', '.join(map(str, rows['batch_size'].unique()))}, one head, causal mask."
    device = f"Measured on {' and '.join(runs['device_name'].dropna().unique())}."
    return charts.titled(chart, result, "time of attention alone; both axes are logarithmic", note, device)


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
