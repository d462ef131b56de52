"""(l) From counters of kernels to what limits them: computation, memory or latency, and how far they are from peaks."""

import altair as alt
import pandas as pd

from kernel_tables.output import percent
from workflow import charts
from workflow.peaks import peak_bytes_per_s, peak_flop_per_s
from workflow.tables import KEYS, read_tables, write_tables
from workflow.text import choose_modes, describe_run, find_middle

LIMITS = {"compute": "computation", "memory": "memory", "latency": "latency", "too small": "too few blocks"}


def main(inputs: list[str], outputs: list[str]) -> None:
    tables = read_tables(inputs)
    table = rank_kernels(tables["counters"], tables["phases"])
    write_tables({"counter_kernels": table}, outputs)
    charts.save_all({"measured_roofline": draw(table, tables["runs"])}, outputs)


def rank_kernels(counters: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """The table `counter_kernels`: times and launches per step."""
    steps = counters["run"].map(phases.groupby("run")["step"].nunique()).astype("float64")
    table = counters.copy()
    table["invocations"] = counters["launches"] / steps
    table["gpu_time_ms"] = counters["total_ns"] / 1e6 / steps
    table["share"] = table["gpu_time_ms"] / table.groupby("run")["gpu_time_ms"].transform("sum")
    # data that a cache held can give more than the peak of DRAM
    nearest = table[["compute_share", "memory_share"]].max(axis=1).clip(upper=1.0)
    rows = table[table["mode"].isin(choose_modes(table)[-1:])]
    times = rows.groupby(KEYS, sort=False)["gpu_time_ms"].sum().reset_index()
    typical = None if times.empty else find_middle(times, "gpu_time_ms")["run"]
    return table.assign(possible_ms=table["gpu_time_ms"] * nearest, is_typical=table["run"] == typical)


def draw(table: pd.DataFrame, runs: pd.DataFrame) -> alt.TopLevelMixin:
    """The roofline of the typical run: a point per kernel, below the peaks of the GPU."""
    of_run, least_share = table[table["is_typical"]], 0.001  # of the time
    points = of_run[(of_run["flop_per_s"] > 0) & (of_run["flops_per_byte"] > 0) & (of_run["share"] >= least_share)]
    if points.empty:
        return charts.text_chart("No run has counters of its kernels: that needs a GPU, Nsight Compute and permission.")
    tera, limits = points["flop_per_s"] / 1e12, points["verdict"].map(LIMITS)
    points = points.assign(intensity=points["flops_per_byte"], tera=tera, limit=limits)
    run, precision = points["run"].iloc[0], points["precision"].iloc[0].replace("-weights", "")
    device = runs.set_index("run").loc[run, "device_name"]
    peaks = {kind: peak_flop_per_s(device, kind) for kind in dict.fromkeys(("fp32", precision))}
    size = alt.Size("share:Q", scale=alt.Scale(range=[15, 700]), legend=None)
    color, points = charts.series_color(points, "limit"), points.sort_values("share", ascending=False)
    chart = charts.draw_roofline(points, peaks, peak_bytes_per_s(device), color=color, size=size)
    shares = of_run.groupby("verdict")["share"].sum().sort_values(ascending=False)
    limit = LIMITS.get(shares.index[0], shares.index[0])
    result = f"{limit.capitalize()} limits {100 * shares.iloc[0]:.0f} % of the kernel time: {describe_run(runs, run)}"
    left_out = f"Without a point: kernels that compute nothing, or take less than {100 * least_share:g} % of the time"
    return charts.titled(
        chart.properties(width=charts.WIDTH - 90, height=330), result.replace("\\", ""),
        "a point per kernel and size of launch; its area is its share of the time; bytes are those of DRAM, as counted",
        f"{left_out} ({percent(1 - points['share'].sum())} together).",
    )  # fmt: skip


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
