"""(k) From the times of warm-up and measured steps to how many warm-up steps are enough.

After w warm-up steps, the mean over the steps that follow is reported. It is wrong by what the warm-up steps in it take
more than a measured step, whose time is the median here, so that one slow step of ten decides nothing.
"""

import altair as alt
import numpy as np
import pandas as pd

from workflow import charts
from workflow.tables import KEYS, make_table, read_tables, write_tables


def main(inputs: list[str], outputs: list[str]) -> None:
    tables = read_tables(inputs)
    table = find_enough(tables["warmup_steps"], tables["steps"])
    write_tables({"warmup_enough": table}, outputs)
    charts.save_all({"warmup": draw(tables["warmup_steps"], tables["steps"])}, outputs)


def find_enough(warmup_steps: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """The table `warmup_enough`: per run and phase, the fewest warm-up steps from which on every mean is right."""
    measured = {key: times.to_numpy("float64") for key, times in steps.groupby(["run", "phase"], sort=False)["ms"]}
    rows = []
    for key, group in warmup_steps.groupby(["run", "phase"], sort=False):
        if key not in measured:
            continue  # memory ran out after the warm-up
        warm, times = group["ms"].to_numpy("float64"), measured[key]
        median = np.median(times)
        # of the median, from the median distance to it; one step says nothing
        error = 1.2533 * 1.4826 * np.median(np.abs(times - median)) / len(times) ** 0.5 if len(times) > 1 else np.inf
        tolerance, count = max(0.01, 2 * error / median), len(times)  # of the mean
        wrong = [(warm[first : first + count] / median - 1).sum() / count for first in range(len(warm))]
        enough = max((first + 1 for first, share in enumerate(wrong) if abs(share) > tolerance), default=0)
        rows.append({**group.iloc[0][[*KEYS, "phase"]], "first_ms": warm[0], "measured_mean_ms": times.mean(),
                     "first_ratio": warm[0] / median, "tolerance": tolerance, "taken": len(warm), "enough": enough,
                     # a run that is known less exactly is not steady
                     "tells": tolerance <= 0.05 and (enough == 0 or enough < len(warm))})  # fmt: skip
    return make_table("warmup_enough", rows)


def draw(warmup_steps: pd.DataFrame, steps: pd.DataFrame) -> alt.TopLevelMixin:
    """Every step of a process, the first included, ÷ the median of the measured: a line per run, and their median."""
    warm, measured = (table[table["phase"] == "step"] for table in (warmup_steps, steps))
    if warm.empty or measured.empty:
        return charts.text_chart("no run kept the times of its warm-up steps")
    medians, taken = measured.groupby("run")["ms"].median(), warm.groupby("run").size()
    measured = measured.assign(step=measured["step"] + measured["run"].map(taken))
    rows = pd.concat([warm, measured])[["run", "step", "ms"]]
    rows = rows[rows["run"].isin(medians.index.intersection(taken.index))]
    rows = rows.assign(ratio=rows["ms"] / rows["run"].map(medians)).reset_index(drop=True)
    middle = rows.groupby("step")["ratio"].median().reset_index()
    x = alt.X("step:Q", title="step, from the first", axis=alt.Axis(format="d", tickMinStep=1))
    y = charts.log_axis(alt.Y, "ratio", "step ÷ measured ones", rows["ratio"])
    begins = alt.Chart(pd.DataFrame({"step": [taken.median() - 0.5]})).mark_rule(color=charts.SOFT, strokeDash=[2, 2])
    lines = alt.Chart(rows).mark_line(color=charts.SKY, opacity=0.5).encode(x, y, detail="run:N")
    median = alt.Chart(middle).mark_line(color=charts.INK, strokeWidth=2.5, point={"color": charts.INK}).encode(x, y)
    chart = alt.layer(begins.encode(x="step:Q"), lines, median).properties(width=charts.WIDTH - 120, height=220)
    return charts.titled(
        chart, f"The first step takes {middle['ratio'][0]:.3g} times as long as later ones",
        "time of every step of a process, logarithmic",
        "Pale: a line per run; dark: their median. Dashed: where the measured steps begin. Without a profiler.",
    )  # fmt: skip


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
