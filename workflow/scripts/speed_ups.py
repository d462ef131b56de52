"""(f, g, h, j) From runs that differ in one dimension alone to what its values gain, in GPU time first."""

import altair as alt
import pandas as pd

from kernel_tables.classes import family
from workflow import charts
from workflow.tables import (
    KEYS,
    find_pairs,
    judge_gpu_times,
    judge_wall_times,
    make_table,
    read_tables,
    sort_runs,
    write_tables,
)
from workflow.text import MODES, describe_machine, write_range

BASES = {"precision": "fp32", "compile": "off", "attention": "eager", "checkpoint": "0", "optimizer": "adamw"}


def main(inputs: list[str], outputs: list[str]) -> None:
    """Reads runs, timings, phases, kernels; writes the table and the figures speed_ups_DIMENSION that are named."""
    tables = read_tables(inputs)
    table = compare_dimensions(tables)
    write_tables({"speed_ups": table}, outputs)
    machine = describe_machine(tables["runs"])
    drawn = {f"speed_ups_{name}": draw(table, name, machine) for name in BASES}
    drawn["speed_ups_checkpoint"] = draw_checkpoints(table, tables["runs"], machine)
    charts.save_all(drawn, outputs)


def compare_dimensions(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The table `speed_ups`: a row per run, dimension in which alone it differs from its base_run, and phase, in the
    order of the grid; verdicts on one dimension and phase share a false discovery rate."""
    kernels = tables["kernels"][tables["kernels"]["step"] >= 0]
    kernels = kernels.assign(is_matmul=kernels["class"].map(family) == "gemm")
    kernels = pd.concat([kernels.assign(phase="step"), kernels])
    sums = kernels.groupby(["is_matmul", "phase", "run", "step"])["total_ns"].sum().groupby(level=[0, 1, 2]).mean()
    counts = tables["phases"].groupby(["phase", "run"])["kernels"].mean()
    parts = []
    for dimension, base in BASES.items():
        pairs = find_pairs(tables["runs"], dimension, base)
        for phase in ("step", "forward", "backward", "optimizer") if len(pairs) else ():
            gpu = judge_gpu_times(tables["phases"], pairs, phase)
            wall = judge_wall_times(tables["timings"], pairs, phase)
            part = pd.DataFrame({
                "run": gpu["after"], "base_run": gpu["before"], "dimension": dimension, "phase": phase,
                "gpu_time_ms": gpu["after_ms"], "base_gpu_time_ms": gpu["before_ms"], "speed_up": 1 / gpu["ratio"],
                "speed_up_low": 1 / gpu["high"], "speed_up_high": 1 / gpu["low"], "verdict": gpu["verdict"],
                "used": gpu["used"], "wall_ms": wall["after_ms"], "base_wall_ms": wall["before_ms"],
                "wall_speed_up": 1 / wall["ratio"], "wall_verdict": wall["verdict"], "wall_used": wall["used"],
            })  # fmt: skip
            for name, column in {"kernels": "run", "base_kernels": "base_run"}.items():
                part[name] = part[column].map(counts.get(phase, {})).astype("float64")
            for name, is_matmul in {"matmul_speed_up": True, "other_speed_up": False}.items():
                times = sums.loc[is_matmul, phase] if (is_matmul, phase) in sums else {}
                part[name] = part["base_run"].map(times) / part["run"].map(times)
            parts.append(part[part["gpu_time_ms"].notna() | part["wall_ms"].notna()])
    if not parts:
        return make_table("speed_ups")
    table = sort_runs(pd.concat(parts, ignore_index=True), tables["runs"])
    return table.merge(tables["runs"][KEYS], on="run", validate="m:1")


def draw(table: pd.DataFrame, dimension: str, machine: str) -> alt.TopLevelMixin:
    """A panel per mode: bars of the speed-up of a step in busy time, with that without a profiler as a mark."""
    rows = table[(table["dimension"] == dimension) & (table["phase"] == "step") & table["speed_up"].notna()]
    if rows.empty:
        return charts.text_chart(f"No two captured runs differ in {dimension} alone.")
    rows = charts.label_rows(rows, but=("mode", dimension))
    rows = rows.assign(furthest=rows[["speed_up", "wall_speed_up"]].max(axis=1), mode=rows["mode"].replace(MODES))
    base, values = f"with {dimension} {BASES[dimension]}", list(dict.fromkeys(rows[dimension]))
    rows["label_text"] = [
        f"{row.speed_up:.2f}" + (f" ({row.wall_speed_up:.2f})" if row.wall_speed_up > 0 else "")
        for row in rows.itertuples()
    ]
    bars = alt.Chart(rows).encode(y=charts.label_axis(rows), yOffset=alt.YOffset(f"{dimension}:N", sort=values))
    scale = alt.Scale(domain=[0, rows["furthest"].max() * 1.2], nice=False)
    layers = [
        bars.mark_bar().encode(
            x=alt.X("speed_up:Q", title=f"times as fast as {base}", scale=scale),
            color=charts.series_color(rows, dimension),
        ),
        alt.Chart(rows).mark_rule(color=charts.SOFT).encode(x=alt.datum(1)),
        bars.mark_text(align="left", dx=3, fontSize=9).encode(x="furthest:Q", text="label_text:N"),
        bars.mark_tick(color=charts.INK, thickness=2, opacity=1).encode(x="wall_speed_up:Q"),
    ]
    chart = alt.layer(*layers).properties(width=520 // rows["mode"].nunique(), height=alt.Step(13))
    chart = chart.facet(alt.Column("mode:N", title=None, sort=list(rows["mode"].unique())))
    ranges = [f"{write_range(some['speed_up'])} ({value})" for value, some in rows.groupby(dimension, sort=False)]
    quantity = "Speed-up in busy time of a step (bars), and in step time without a profiler (ticks, in brackets)"
    return charts.titled(chart, f"A step is {', '.join(ranges)} times as fast as {base}", quantity, machine)


def draw_checkpoints(table: pd.DataFrame, runs: pd.DataFrame, machine: str) -> alt.TopLevelMixin:
    """A panel per configuration: busy time of a step against peak memory, a point per value of checkpoint."""
    rows = table[(table["dimension"] == "checkpoint") & (table["phase"] == "step") & table["speed_up"].notna()]
    bases = rows.assign(run=rows["base_run"], gpu_time_ms=rows["base_gpu_time_ms"], checkpoint="none")
    rows = charts.label_rows(pd.concat([bases.drop_duplicates("run"), rows]), but=("checkpoint",))
    rows = rows.assign(gib=rows["run"].map(runs.set_index("run")["peak_allocated_bytes"]).astype("float64") / 2**30)
    rows = rows[rows["gib"].notna()]
    if rows.empty:
        return charts.text_chart("No two runs with times and memory differ in checkpoints alone.")
    x = alt.X("gib:Q", title="peak memory (GiB)", scale=alt.Scale(zero=False, padding=24))
    y = alt.Y("gpu_time_ms:Q", title="busy time of a step (ms)", scale=alt.Scale(zero=False, padding=16))
    panels = []
    for label, panel in rows.groupby("label", sort=False):
        points = alt.Chart(panel).encode(x=x, y=y)
        points = points.mark_point(size=60) + points.mark_text(dy=-11).encode(text="checkpoint:N")
        panels.append(points.properties(title=label, width=280, height=170))
    lines = [alt.hconcat(*panels[start : start + 2]) for start in range(0, len(panels), 2)]
    speed_ups = rows.loc[rows["checkpoint"] != "none", "speed_up"]
    result = f"With checkpoints, the device is busy for {write_range(1 / speed_ups, 'percent')} of the time"
    quantity = "A point is a number of blocks that share a checkpoint; lower left is better. The axes do not begin at 0"
    return charts.titled(alt.vconcat(*lines), result, quantity, machine)


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
