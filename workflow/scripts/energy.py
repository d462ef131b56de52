"""(m) From windows of a counter to the energy of a step and a token, and what waiting for the host costs."""

import altair as alt
import numpy as np
import pandas as pd

from cs336_model.results import Energy
from workflow import charts
from workflow.tables import KEYS, read_tables, write_tables
from workflow.text import MODES, find_middle
from workflow.verdict import find_pairs


def main(inputs: list[str], outputs: list[str]) -> None:
    tables = read_tables(inputs)
    table = summarize_energy(tables["energy_windows"], tables["runs"], tables["phases"])
    write_tables({"energy": table}, outputs)
    charts.save_all({"energy": draw(table, tables["runs"])}, outputs)


def list_windows(result: Energy) -> list[dict]:
    """The rows of a run in `energy_windows`."""
    return [
        {
            "window": number, "kind": window.kind, "seconds": window.seconds, "joules": 1e-6 * window.microjoules,
            "steps": window.steps, "power_w": 1e-6 * window.microjoules / window.seconds,
            "sm_clock_mhz": window.sm_clock_mhz, "counter": result.counter, "tick_ms": 1e3 * result.tick_s,
        }
        for number, window in enumerate(result.windows)
    ]  # fmt: skip


def summarize_energy(windows: pd.DataFrame, runs: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """The table `energy`."""
    runs = runs[runs["run"].isin(windows["run"])].set_index("run", drop=False)
    work = windows[windows["kind"] == "steps"]
    work = work.assign(step_j=work["joules"] / work["steps"])
    table, by_run = runs[KEYS].copy(), work.groupby("run")
    idle_w = windows[windows["kind"] == "idle"].groupby("run")["power_w"]
    table["counter"], table["windows"] = by_run["counter"].first(), by_run.size()
    table["step_ms"] = 1e3 * by_run["seconds"].sum() / by_run["steps"].sum()
    columns = {"joules_per_step": by_run["step_j"], "power_w": by_run["power_w"], "idle_power_w": idle_w}
    for name, values in columns.items():
        table[name], table[f"{name}_std"] = values.mean(), values.std()
    table["joules_per_token"] = table["joules_per_step"] / (table["batch_size"] * table["context_length"])
    # a backward pass has two products for each of the forward pass
    flops = runs["forward_flops"].astype("float64") * np.where(table["mode"] == "forward", 1, 3)
    table["tflops_per_watt"] = 1e-12 * flops / table["joules_per_step"]
    table["tick_share"] = by_run["tick_ms"].first() / (1e3 * by_run["seconds"].min())
    steps = phases[(phases["phase"] == "step") & (phases["gpu_busy_ns"] > 0)]
    on_gpu = runs["device"] == "cuda"
    table["busy_ms"] = (steps.groupby("run")["gpu_busy_ns"].mean().astype("float64") / 1e6).reindex(table.index)[on_gpu]
    table["waiting_share"] = (1 - table["busy_ms"] / table["step_ms"]).clip(lower=0)
    table["waiting_energy_share"] = table["waiting_share"] * (table["idle_power_w"] / table["power_w"]).clip(upper=1)
    bases = find_pairs(table, "precision", "fp32").set_index("after")["before"]
    table["base_run"] = table["run"].map(bases)
    base_j = table["base_run"].map(table["joules_per_step"]).astype("float64")
    table["energy_ratio"] = table["joules_per_step"] / base_j
    return table.reset_index(drop=True)


def draw(table: pd.DataFrame, runs: pd.DataFrame) -> alt.TopLevelMixin:
    """A bar per run of the fullest mode: the energy of a token in three parts, with the mean power behind it."""
    mode = next((mode for mode in reversed(MODES) if mode in set(table["mode"])), None)
    if mode is None:
        return charts.text_chart("No run has a measurement of energy.")
    rows = table[table["mode"] == mode].assign(mj=lambda rows: 1e3 * rows["joules_per_token"])
    label = rows["model"] + ", context " + rows["context_length"].astype(str)
    for key in (key for key in KEYS[4:] if rows[key].nunique() > 1):
        label = label + ", " + rows[key].astype(str)
    idle_w = rows["idle_power_w"].clip(upper=rows["power_w"])
    waiting_w = idle_w * rows["waiting_share"].fillna(0.0)
    watts = {  # in the order in which the bars are stacked
        "above idle power": rows["power_w"] - idle_w,
        "idle power, GPU at work": idle_w - waiting_w,
        "idle power, GPU waits for the host": waiting_w,
    }
    rows = rows.assign(label=label, text=[f"{row.mj:.3g} mJ, {row.power_w:.0f} W" for row in rows.itertuples()])
    parts = [rows.assign(part=part, part_mj=rows["mj"] * watt / rows["power_w"], place=place)
             for place, (part, watt) in enumerate(watts.items())]  # fmt: skip
    scale = alt.Scale(domain=list(watts), range=[charts.BLUE, charts.SKY, charts.VERMILLION])
    y = charts.label_axis(rows)
    bars = alt.Chart(pd.concat(parts)).mark_bar(height=14).encode(
        y=y, x=alt.X("part_mj:Q", title="energy of a token (mJ)"), order="place:Q",
        color=alt.Color("part:N", scale=scale, title=None),
    )  # fmt: skip
    texts = alt.Chart(rows).mark_text(align="left", dx=5).encode(y=y, x="mj:Q", text="text")
    chart = (bars + texts).properties(width=charts.WIDTH - 260, height=alt.Step(22))
    pairs = rows[rows["energy_ratio"].notna()]
    result = f"A token takes {find_middle(rows, 'mj')['mj']:.3g} mJ in the median {MODES[mode]}"
    if len(pairs):
        ends = [f"{100 * ratio:.0f}" for ratio in (pairs["energy_ratio"].min(), pairs["energy_ratio"].max())]
        result = f"A {MODES[mode]} in {' or '.join(pairs['precision'].unique())} takes"
        result += f" {' to '.join(dict.fromkeys(ends))} % of the energy of fp32"
    note = f"Measured on {' and '.join(runs['device_name'].dropna().unique())}; {table['counter'].iloc[0]}."
    return charts.titled(chart, result, "energy of a token by run, with the mean power of the steps", note)


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
