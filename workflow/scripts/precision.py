"""(f) From the merged tables to what another precision than fp32 gains: table `precision` and its figure."""

from workflow import charts
from workflow.tables import read_tables, write_table
from workflow.text import describe_machine, write_range
from workflow.verdict import compare_runs

BASE = "fp32"


def main(inputs: list[str], outputs: list[str]) -> None:
    """Reads runs, timings, phases and kernels; writes the outputs that are named."""
    tables = read_tables(inputs)
    table = compare_runs(tables, "precision", BASE)
    loss = tables["runs"].set_index("run")["loss"].astype("float64")
    losses = (table[name].map(loss).astype("float64") for name in ("run", "base_run"))
    table["loss_difference"] = next(losses) / next(losses) - 1
    write_table(table, next(path for path in outputs if path.endswith(".parquet")))
    charts.save_all({"precision": draw(table, describe_machine(tables["runs"]))}, outputs)


def draw(table, machine: str):
    """The figure: how many times as fast a step is in GPU time."""
    steps = table[(table["phase"] == "step") & table["speed_up"].notna()]
    if steps.empty:
        return charts.text_chart("No two captured runs differ in precision alone.")
    ranges = [f"{write_range(rows['speed_up'])} in {name}" for name, rows in steps.groupby("precision", sort=False)]
    return charts.titled(
        charts.draw_speed_ups(steps, "precision", BASE), f"Times as fast as {BASE}: {', '.join(ranges)}",
        "Speed-up of a step in GPU time (bars), and of the step without a profiler (ticks)", machine,
    )  # fmt: skip


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
