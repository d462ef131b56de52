"""(h) From runs that differ only in attention to how much faster a step is with each backend, GPU time first."""

import altair as alt
import pandas as pd

from workflow import charts
from workflow.tables import KEYS, read_tables, write_tables
from workflow.text import MODES, find_middle
from workflow.verdict import find_pairs, judge_gpu_times, judge_wall_times

OTHERS = [key for key in KEYS[1:] if key != "attention"]  # runs that agree in these differ only in attention


def main(inputs: list[str], outputs: list[str]) -> None:
    tables = read_tables(inputs)
    table = compare_backends(tables)
    write_tables({"attention_backends": table}, outputs)
    charts.save_all({"attention_backends": draw(table, tables["runs"])}, outputs)


def compare_backends(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The table `attention_backends`."""
    runs, phases, kernels = (tables[name] for name in ("runs", "phases", "kernels"))
    table = compare_steps(runs, tables["timings"], phases, "attention", "eager")
    table["peak_bytes"] = table["run"].map(runs.set_index("run")["peak_allocated_bytes"])
    table["idle_share"] = (1 - table["gpu_ms"] / table["wall_ms"]).clip(lower=0)
    is_inside = kernels["range"].astype("str").str.contains("scaled dot product attention", regex=False)
    inside = kernels[(kernels["phase"] == "forward") & is_inside]
    steps = phases.groupby("run")["step"].nunique()
    attention_ms = inside.groupby("run")["total_ns"].sum() / 1e6 / steps
    table["attention_ms"] = table["run"].map(attention_ms).astype("float64")
    table["attention_ratio"] = table["attention_ms"] / table["base_run"].map(attention_ms).astype("float64")
    compared = table[table["gpu_ratio"].notna()]
    mode = next((mode for mode in reversed(MODES) if mode in set(compared["mode"])), None)
    compared = compared[compared["mode"] == mode]
    fastest = compared.loc[compared.groupby(OTHERS, dropna=False)["gpu_ms"].idxmin()]
    typical = find_middle(fastest, "gpu_ratio")["run"] if len(fastest) else None
    return table.assign(is_typical=table["run"] == typical)


def compare_steps(runs: pd.DataFrame, timings: pd.DataFrame, phases: pd.DataFrame, key: str, base: str) -> pd.DataFrame:
    """Runs that another differs from in `key` alone: times of a step, compared with those of the run that has `base`
    there, the base_run."""
    others = [name for name in KEYS[1:] if name != key]
    table = runs[runs.groupby(others, dropna=False)[key].transform("nunique") > 1]
    table = table[[*KEYS, "timing_status"]].rename(columns={"timing_status": "status"})
    table = table.assign(base_run=table["run"].map(find_pairs(table, key, base).set_index("after")["before"]))
    table = table.reset_index(drop=True)
    pairs = table[["base_run", "run"]].set_axis(["before", "after"], axis=1)
    for name, judged in (("gpu", judge_gpu_times(phases, pairs)), ("wall", judge_wall_times(timings, pairs))):
        table[f"{name}_ms"], table[f"{name}_ratio"] = judged["after_ms"], judged["ratio"]
        table[f"{name}_verdict"] = judged["verdict"].where(judged["ratio"].notna())
    return table


def draw(table: pd.DataFrame, runs: pd.DataFrame) -> alt.TopLevelMixin:
    """A bar per attention and configuration: GPU time of a step, in relation to eager attention."""
    rows = table[table["gpu_ratio"].notna()]
    if rows.empty:
        return charts.text_chart("No two captured runs differ only in attention.")
    varying = [key for key in OTHERS[2:] if rows[key].nunique() > 1 and key != "mode"]
    label = rows["model"] + ", context " + rows["context_length"].astype(str) + ", " + rows["mode"].map(MODES)
    for key in varying:
        label = label + ", " + rows[key].astype(str)
    rows = rows.assign(label=label, percent=100 * rows["gpu_ratio"])
    points = alt.Chart(rows).mark_point(size=90).encode(
        y=charts.label_axis(rows), x=alt.X("percent:Q", title="GPU time of a step, % of that with eager attention"),
        color=charts.series_color(rows, "attention"), shape=charts.series_shape(rows, "attention"),
    )  # fmt: skip
    line = alt.Chart(pd.DataFrame({"percent": [100.0]})).mark_rule(strokeDash=[4, 3]).encode(x="percent:Q")
    chart = (line + points).properties(width=charts.WIDTH - 250, height=alt.Step(28))
    typical = table[table["is_typical"]].iloc[0]
    devices = " and ".join(runs["device_name"].dropna().unique())
    return charts.titled(
        chart, f"With {typical['attention']} attention, a {MODES[typical['mode']]} of {typical['model']} at context"
        f" {typical['context_length']} takes {100 * typical['gpu_ratio']:.0f} % of the GPU time",
        "left of the dashed line is faster than eager attention", f"Measured on {devices}.",
    )  # fmt: skip


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
