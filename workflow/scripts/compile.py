"""(g) From the merged tables to what compiling gains and costs: table `compile` and its figure."""

from workflow import charts
from workflow.tables import read_tables, write_table
from workflow.text import describe_machine
from workflow.verdict import FASTER, compare_runs

NAMES = {"on": "the entire model", "attention": "only attention"}


def main(inputs: list[str], outputs: list[str]) -> None:
    """Reads runs, timings, phases and kernels; writes the outputs that are named."""
    tables = read_tables(inputs)
    runs, table = tables["runs"].set_index("run"), compare_runs(tables, "compile", "off")
    for name in ("compile_s", "graph_breaks"):
        table[name] = table["run"].map(runs[name]).astype("float64") if name in runs else float("nan")
    pays = (table["verdict"] == FASTER) & (table["phase"] == "step")  # a step is compiled, not a phase
    table["pays_after_steps"] = 1e3 * table["compile_s"] / (table["base_gpu_time_ms"] - table["gpu_time_ms"])[pays]
    write_table(table, next(path for path in outputs if path.endswith(".parquet")))
    shown = table.assign(compile=table["compile"].replace(NAMES))
    figure = charts.draw_speed_ups(shown, "compile", "not compiled", describe_machine(tables["runs"]))
    charts.save_all({"compile": figure}, outputs)


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
