"""(l) From counters of kernels to what limits them: computation, memory or latency, and how far they are from peaks."""

import altair as alt
import numpy as np
import pandas as pd

from workflow import charts
from workflow.peaks import peak_bytes_per_s, peak_flop_per_s
from workflow.tables import read_tables, write_tables
from workflow.text import MODES, describe_run, find_middle

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
    mode = next((mode for mode in reversed(MODES) if mode in set(table["mode"])), None)
    times = table[table["mode"] == mode].groupby("run", sort=False)["gpu_time_ms"].sum().reset_index()
    typical = None if times.empty else find_middle(times, "gpu_time_ms")["run"]
    return table.assign(possible_ms=table["gpu_time_ms"] * nearest, is_typical=table["run"] == typical)


def draw(table: pd.DataFrame, runs: pd.DataFrame) -> alt.TopLevelMixin:
    """The roofline of the typical run: a point per kernel, below the peaks of the GPU."""
    of_run, least_share = table[table["is_typical"]], 0.001  # of the time
    points = of_run[(of_run["flop_per_s"] > 0) & (of_run["flops_per_byte"] > 0) & (of_run["share"] >= least_share)]
    if points.empty:
        return charts.text_chart("No run has counters of its kernels: that needs a GPU, Nsight Compute and permission.")
    points = points.assign(tera=points["flop_per_s"] / 1e12, limit=points["verdict"].map(LIMITS))
    run, precision = points["run"].iloc[0], points["precision"].iloc[0].replace("-weights", "")
    device = runs.set_index("run").loc[run, "device_name"]
    x = charts.log_axis(alt.X, "flops_per_byte", "FLOP per byte of DRAM, counted")
    y = charts.log_axis(alt.Y, "tera", "TFLOP/s")
    x["axis"]["values"] = y["axis"]["values"] = [10.0**power for power in range(-4, 5)]
    names = [limit for verdict, limit in LIMITS.items() if verdict in set(points["verdict"])]
    colors = dict(zip(LIMITS.values(), (charts.BLUE, charts.VERMILLION, charts.ORANGE, charts.GREY), strict=True))
    scale = alt.Scale(domain=names, range=[colors[name] for name in names])
    marks = alt.Chart(points.sort_values("share", ascending=False)).mark_point(
        filled=True, opacity=0.7, stroke="white", strokeWidth=0.5
    ).encode(
        x=x, y=y, color=alt.Color("limit:N", title=None, scale=scale),
        size=alt.Size("share:Q", scale=alt.Scale(range=[15, 700]), legend=None),
    )  # fmt: skip
    layers, bytes_per_s = [], peak_bytes_per_s(device)
    for kind in dict.fromkeys(("fp32", precision)):
        peak = peak_flop_per_s(device, kind)
        if np.isnan(peak):
            continue
        ridge, low = peak / bytes_per_s, points["flops_per_byte"].min() / 2
        roof = pd.DataFrame({"flops_per_byte": [low, ridge, max(points["flops_per_byte"].max(), ridge) * 3]})
        roof["tera"] = np.minimum(roof["flops_per_byte"] * bytes_per_s, peak) / 1e12
        roof["label"] = f"{peak / 1e12:.3g} TFLOP/s in {kind}"
        layers.append(alt.Chart(roof).mark_line(color=charts.INK, strokeWidth=1.2).encode(x=x, y=y))
        layers.append(alt.Chart(roof[1:2]).mark_text(align="right", dx=-6).encode(x=x, y=y, text="label"))
    chart = alt.layer(*layers, marks).properties(width=charts.WIDTH - 90, height=330)
    shares = of_run.groupby("verdict")["share"].sum().sort_values(ascending=False)
    limit = LIMITS.get(shares.index[0], shares.index[0])
    result = f"{limit.capitalize()} limits {100 * shares.iloc[0]:.0f} % of the kernel time: {describe_run(runs, run)}"
    return charts.titled(
        chart, result.replace("\\", ""), "a point per kernel and size of launch; its area is its share of the time",
        f"Lines: peaks of {device} by its data sheet, with {bytes_per_s / 1e12:.3g} TB/s. Without a point: kernels that"
        f" compute nothing, or take less than {100 * least_share:g}\N{NO-BREAK SPACE}% of the time"
        f" ({100 * (1 - points['share'].sum()):.0f}\N{NO-BREAK SPACE}% together).",
    )  # fmt: skip


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
