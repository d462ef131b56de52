"""(f) From the merged tables to what another precision than fp32 gains: table `precision` and its figure."""

from workflow import charts
from workflow.tables import read_tables, write_table
from workflow.text import describe_machine
from workflow.verdict import compare_runs


def main(inputs: list[str], outputs: list[str]) -> None:
    """Reads runs, timings, phases and kernels; writes the outputs that are named."""
    tables = read_tables(inputs)
    table, loss = compare_runs(tables, "precision", "fp32"), tables["runs"].set_index("run")["loss"].astype("float64")
    losses = (table[name].map(loss).astype("float64") for name in ("run", "base_run"))
    table["loss_difference"] = next(losses) / next(losses) - 1
    write_table(table, next(path for path in outputs if path.endswith(".parquet")))
    figure = charts.draw_speed_ups(table, "precision", "fp32", describe_machine(tables["runs"]))
    charts.save_all({"precision": figure}, outputs)


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
