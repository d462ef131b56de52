"""(m) From windows of a counter to the energy of a step and a token, and what waiting for the host costs."""

import altair as alt
import numpy as np
import pandas as pd

from workflow import charts
from workflow.tables import KEYS, find_pairs, read_tables, write_tables
from workflow.text import MODES, choose_modes, describe_machine, find_middle, write_range


def main(inputs: list[str], outputs: list[str]) -> None:
    tables = read_tables(inputs)
    table = summarize_energy(tables["energy_windows"], tables["runs"])
    write_tables({"energy": table}, outputs)
    charts.save_all({"energy": draw(table, tables["runs"])}, outputs)


def summarize_energy(windows: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    runs = runs[runs["run"].isin(windows["run"])].set_index("run", drop=False)
    windows = windows.assign(power_w=windows["joules"] / windows["seconds"])
    work = windows[windows["kind"] == "steps"]
    work = work.assign(step_j=work["joules"] / work["steps"])
    table, by_run = runs[KEYS].copy(), work.groupby("run")
    table["idle_power_w"] = windows[windows["kind"] == "idle"].groupby("run")["power_w"].mean()
    table["step_ms"] = 1e3 * by_run["seconds"].sum() / by_run["steps"].sum()
    for name, values in {"joules_per_step": by_run["step_j"], "power_w": by_run["power_w"]}.items():
        table[name], table[f"{name}_std"] = values.mean(), values.std()
    table["joules_per_token"] = table["joules_per_step"] / (table["batch_size"] * table["context_length"])
    # a backward pass has two products for each of the forward pass
    flops = runs["forward_flops"].astype("float64") * np.where(table["mode"] == "forward", 1, 3)
    table["tflops_per_watt"] = 1e-12 * flops / table["joules_per_step"]
    table["base_run"] = table["run"].map(find_pairs(table, "precision", "fp32").set_index("after")["before"])
    base_j = table["base_run"].map(table["joules_per_step"]).astype("float64")
    table["energy_ratio"] = table["joules_per_step"] / base_j
    return table.reset_index(drop=True)


def draw(table: pd.DataFrame, runs: pd.DataFrame) -> alt.TopLevelMixin:
    """A bar per run of the fullest mode: the energy of a token, with the mean power behind it."""
    if table.empty:
        return charts.text_chart("No run has a measurement of energy.")
    mode = choose_modes(table)[-1]
    rows = charts.label_rows(table[table["mode"] == mode]).assign(mj=lambda rows: 1e3 * rows["joules_per_token"])
    rows = rows.assign(text=[f"{row.mj:.3g} mJ, {row.power_w:.0f} W" for row in rows.itertuples()])
    base = alt.Chart(rows).encode(y=charts.label_axis(rows), x=alt.X("mj:Q", title="energy of a token (mJ)"))
    bars, texts = base.mark_bar(height=14, color=charts.SKY), base.mark_text(align="left", dx=5).encode(text="text")
    chart = (bars + texts).properties(width=charts.WIDTH - 260, height=alt.Step(22))
    pairs = rows[rows["energy_ratio"].notna()]
    result = f"A token takes {find_middle(rows, 'mj')['mj']:.3g} mJ in the median {MODES[mode]}"
    if len(pairs):
        result = f"A {MODES[mode]} in {' or '.join(pairs['precision'].unique())} takes"
        result += f" {write_range(pairs['energy_ratio'], 'percent')} of the energy of fp32"
    quantity = "energy of a token by run, with the mean power of the steps"
    return charts.titled(chart, result, quantity, describe_machine(runs))


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
