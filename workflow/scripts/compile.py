"""(g) From the merged tables to what compiling gains and costs: table `compile` and its figure."""

import pandas as pd

from workflow import charts
from workflow.tables import read_tables, write_table
from workflow.text import describe_machine, write_range
from workflow.verdict import FASTER, compare_runs

BASE = "off"
NAMES = {"on": "the entire model", "attention": "only attention"}


def main(inputs: list[str], outputs: list[str]) -> None:
    """Reads runs, timings, phases and kernels; writes the outputs that are named."""
    tables = read_tables(inputs)
    runs, table = tables["runs"].set_index("run"), compare_runs(tables, "compile", BASE)
    for name in ("compile_s", "graph_breaks"):
        table[name] = table["run"].map(runs[name]).astype("float64") if name in runs else float("nan")
    saved_ms = (table["base_gpu_time_ms"] - table["gpu_time_ms"]).where(
        (table["verdict"] == FASTER) & (table["phase"] == "step")
    )
    table["pays_after_steps"] = 1e3 * table["compile_s"] / saved_ms
    write_table(table, next(path for path in outputs if path.endswith(".parquet")))
    charts.save_all({"compile": draw(table, describe_machine(tables["runs"]))}, outputs)


def draw(table: pd.DataFrame, machine: str):
    """The figure: how many times as fast a step is in GPU time."""
    steps = table[(table["phase"] == "step") & table["speed_up"].notna()]
    if steps.empty:
        return charts.text_chart("No two captured runs differ in compilation alone.")
    ranges = [f"{write_range(rows['speed_up'])} ({NAMES[name]})" for name, rows in steps.groupby("compile", sort=False)]
    return charts.titled(
        charts.draw_speed_ups(steps, "compile", "not compiled"), f"Times as fast, compiled: {', '.join(ranges)}",
        "Speed-up of a step in GPU time (bars), and of the step without a profiler (ticks)", machine,
    )  # fmt: skip


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
