"""(j) From the merged tables to what activation checkpointing saves in memory and costs in time: table and figure.

A checkpoint of k blocks keeps the input of the first alone; the backward pass computes these blocks again.
"""

import altair as alt
import pandas as pd

from workflow import charts
from workflow.tables import KEYS, read_tables, write_tables
from workflow.text import describe_machine, find_middle, write_percent
from workflow.verdict import find_pairs, judge_gpu_times, judge_wall_times

OTHERS = [key for key in KEYS[1:] if key != "checkpoint"]  # runs that agree in these differ only in checkpoints


def compare_checkpoints(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """A row per run with a backward pass that another differs from in checkpoints alone. Reads runs, timings, phases,
    kernels, and if they are there, memory_totals and memory_activations."""
    runs = tables["runs"]
    table = runs[runs["mode"] != "forward"]
    table = table[table.groupby(OTHERS, dropna=False)["checkpoint"].transform("nunique") > 1]
    table = table[[*KEYS, "timing_status"]].rename(columns={"timing_status": "status"}).reset_index(drop=True)
    table["base_run"] = table["run"].map(find_pairs(table, "checkpoint", "0").set_index("after")["before"])
    pairs = table[["base_run", "run"]].set_axis(["before", "after"], axis=1)
    times = {"gpu": judge_gpu_times(tables["phases"], pairs), "wall": judge_wall_times(tables["timings"], pairs)}
    for name, judged in times.items():
        table[f"{name}_ms"], table[f"{name}_ratio"] = judged["after_ms"], judged["ratio"]
        table[f"{name}_verdict"] = judged["verdict"].where(judged["ratio"].notna())
    recorded = tables["memory_totals"].set_index("run")["requested_peak_bytes"] if "memory_totals" in tables else {}
    kept = tables["memory_activations"].groupby("run")["bytes"].sum() if "memory_activations" in tables else {}
    counted = runs[runs["timing_status"] == "complete"].set_index("run")["peak_allocated_bytes"]
    if table["run"].map(counted).isna().all():  # a processor's allocator counts nothing
        counted = recorded
    for name, source in {"peak_bytes": counted, "kept_bytes": kept}.items():
        table[name] = table["run"].map(source).astype("float64")
    peaks = table.set_index("run")["peak_bytes"]
    table["peak_ratio"] = table["peak_bytes"] / table["base_run"].map(peaks)
    kernels = tables["kernels"]
    is_again = kernels["range"].astype("str").str.contains("recomputation", regex=False)
    total = kernels.groupby("run")["total_ns"].sum()
    again = kernels[is_again].groupby("run")["total_ns"].sum().reindex(total.index, fill_value=0)
    table["recomputed_share"] = table["run"].map(again / total).astype("float64")
    lowest = table.dropna(subset=["peak_ratio", "gpu_ratio"])
    lowest = lowest.loc[lowest.groupby(OTHERS)["peak_bytes"].idxmin()]
    typical = find_middle(lowest, "gpu_ratio")["run"] if len(lowest) else None
    return table.assign(is_typical=table["run"] == typical)


def draw(table: pd.DataFrame, machine: str) -> alt.TopLevelMixin:
    """A panel per configuration: GPU time of a step against peak memory, a point per value of checkpoint."""
    rows = charts.label_rows(table, but=("checkpoint",)).dropna(subset=["gpu_ms", "peak_bytes"])
    rows = rows[rows.groupby("label")["run"].transform("size") > 1]
    if rows.empty:
        return charts.text_chart("No two runs with times and memory differ in checkpoints alone.")
    unit, name = (2**30, "GiB") if rows["peak_bytes"].max() >= 2**30 else (2**20, "MiB")
    rows = rows.assign(peak=rows["peak_bytes"] / unit, name=rows["checkpoint"].replace("0", "none"))
    x = alt.X("peak:Q", title=f"peak memory ({name})", scale=alt.Scale(zero=False, padding=24))
    y = alt.Y("gpu_ms:Q", title="GPU time of a step (ms)", scale=alt.Scale(zero=False, padding=16))
    panels = []
    for label, panel in rows.groupby("label", sort=False):
        base = alt.Chart(panel).encode(x=x, y=y)
        names = base.mark_text(dy=-11).encode(text="name:N")
        points = base.mark_point(size=60).encode(tooltip=["name", "peak", "gpu_ms"])
        panels.append((points + names).properties(title=label, width=280, height=170))
    lines = [alt.hconcat(*panels[start : start + 2]) for start in range(0, len(panels), 2)]
    typical = table[table["is_typical"]]
    result = "Checkpoints trade time for memory"
    if len(typical):
        row = typical.iloc[0]
        gains = write_percent(row["peak_ratio"]), write_percent(row["gpu_ratio"])
        result = "{} of the memory for {} of the GPU time".format(*gains)
        result += f": {row['model']}, context {row['context_length']}, checkpoint {row['checkpoint']}"
    quantity = "A point is a number of blocks that share a checkpoint; lower left is better. The axes do not begin at 0"
    return charts.titled(alt.vconcat(*lines), result, quantity, machine)


def main(inputs: list[str], outputs: list[str]) -> None:
    tables = read_tables(inputs)
    table = compare_checkpoints(tables)
    write_tables({"checkpoint": table}, outputs)
    charts.save_all({"checkpoint": draw(table, describe_machine(tables["runs"]))}, outputs)


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
