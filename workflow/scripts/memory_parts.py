"""(i) From recorded allocations to what memory is for.

memory_phases   -> memory_peak: the peak of each run by category
memory_timeline -> the figure: the last measured step of the typical run
"""

import altair as alt
import pandas as pd

from kernel_tables.output import percent
from workflow import charts
from workflow.scripts.memory_tables import CATEGORIES
from workflow.tables import read_tables, write_tables
from workflow.text import MODES, describe_machine, describe_run, find_middle, write_size


def main(inputs: list[str], outputs: list[str]) -> None:
    tables = read_tables(inputs)
    peaks = find_peaks(tables["memory_phases"])
    write_tables({"memory_peak": peaks}, outputs)
    charts.save_all({"memory_timeline": draw_timeline(tables["memory_timeline"], peaks, tables["runs"])}, outputs)


def find_peaks(phases: pd.DataFrame) -> pd.DataFrame:
    """A row per run and category at the peak of the last measured step, its phase, and whether the run is typical."""
    last = phases[(phases["step"] >= 0) & (phases["step"] == phases.groupby("run")["step"].transform("max"))]
    step = last[last["phase"] == "step"].drop(columns=["step", "phase"])
    by_phase = last[last["phase"] != "step"].groupby(["run", "phase"], sort=False)["bytes"].sum().reset_index()
    by_phase = by_phase.sort_values("bytes", ascending=False, kind="stable").drop_duplicates("run").set_index("run")
    peak = step.groupby("run")["bytes"].transform("sum")
    step = step.assign(
        peak_bytes=peak, share=step["bytes"] / peak, fullest_phase=step["run"].map(by_phase["phase"])
    ).reset_index(drop=True)
    typical = [find_middle(rows, "peak_bytes")["run"] for _, rows in step.drop_duplicates("run").groupby("mode")]
    return step.assign(is_typical=step["run"].isin(typical))


def draw_timeline(timeline: pd.DataFrame, peaks: pd.DataFrame, runs: pd.DataFrame) -> alt.TopLevelMixin:
    """Memory of the typical training step (or pass) over time, as areas by category, with the names of phases above."""
    typical = peaks[peaks["is_typical"]].drop_duplicates("run")
    if typical.empty:
        return charts.text_chart("No data: no run has a complete record of its allocations.")
    drawn = typical.sort_values("mode", key=lambda modes: modes.map(list(MODES).index)).iloc[-1]
    moments = timeline[timeline["run"] == drawn["run"]]
    unit, unit_name = (2**30, "GiB") if drawn["peak_bytes"] >= 2**30 else (2**20, "MiB")
    columns = {f"{name.replace(' ', '_')}_bytes": name for name in CATEGORIES}
    sizes = moments[list(columns)].rename(columns=columns) / unit
    rows = sizes.assign(ms=moments["ms"]).melt("ms", var_name="category", value_name="size")
    rows = rows.assign(order=rows["category"].map(CATEGORIES.index))
    top = 1.2 * sizes.sum(axis=1).max()
    rows = rows[rows.groupby("category")["size"].transform("max") >= 0.002 * top]
    legend = alt.Legend(values=list(dict.fromkeys(rows["category"])), title=None)  # in the order of the areas
    scale = alt.Scale(domain=[0, top], nice=False)
    area = alt.Chart(rows).mark_area(interpolate="step-after").encode(
        x=alt.X("ms:Q", title="time since the step began (ms, while recording)", scale=alt.Scale(nice=False),
                axis=alt.Axis(grid=False)),
        y=alt.Y("size:Q", title=f"memory in use ({unit_name})", scale=scale, stack="zero"), order="order:Q",
        color=charts.part_color(rows, "category").legend(legend),
    )  # fmt: skip
    layers = alt.layer(area, *mark_phases(moments, top)).properties(width=charts.WIDTH - 80, height=260)
    largest = peaks[peaks["run"] == drawn["run"]].nlargest(1, "bytes").iloc[0]
    size, share = write_size(drawn["peak_bytes"]), percent(largest["share"])
    result = f"Memory is highest in {drawn['fullest_phase']}: {size}, {share} of it {largest['category']}"
    note = f"Last measured step of {describe_run(runs, drawn['run'])}; each of {len(moments)} slices at its peak."
    return charts.titled(layers, result, "Memory in use during a step, by category", note, describe_machine(runs))


def mark_phases(moments: pd.DataFrame, top: float) -> list[alt.Chart]:
    """A dashed line where a phase begins, and its name above, if the phase is long enough to have room for it."""
    begins = moments[moments["phase"].ne(moments["phase"].shift()) & (moments["phase"] != "(outside)")]
    lasts = begins["ms"].shift(-1, fill_value=moments["ms"].max()) - begins["ms"]
    begins = begins[lasts >= 0.01 * moments["ms"].max()]
    heights = [top * (0.93 + 0.06 * (number % 2)) for number in range(len(begins))]  # neighbours do not overlap
    base = alt.Chart(begins[["ms", "phase"]].assign(start=heights)).encode(x="ms:Q")
    names = base.mark_text(align="left", dx=3, baseline="top").encode(y="start:Q", text="phase:N")
    return [base.mark_rule(color=charts.SOFT, strokeDash=[2, 2]), names]


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
