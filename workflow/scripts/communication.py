"""(n) From steps with and without communication, and on one GPU, to what communication costs."""

import altair as alt
import pandas as pd

from kernel_tables.output import percent
from workflow import charts
from workflow.tables import KEYS, find_pairs, judge_wall_times, read_tables, write_tables
from workflow.text import describe_machine, find_middle

PARTS = {  # of a captured step, with the columns that are their time
    "computing alone": ("compute_ms", charts.BLUE),
    "computing, overlapped": ("overlapped_ms", charts.SKY),
    "exposed communication": ("exposed_communication_ms", charts.VERMILLION),
    "copies and fills": ("exposed_memory_ms", charts.GREY),
    "idle": ("idle_ms", charts.PALE),
}


def compare_steps(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """communication_times: a row per run on several GPUs; reads runs, timings and communication_steps."""
    timings = tables["timings"]
    runs = tables["runs"][tables["runs"]["gpus"].astype("int64") > 1]
    table = runs[[*KEYS, "timing_status"]].rename(columns={"timing_status": "status"}).reset_index(drop=True)
    for prefix, phase in {"": "step", "without_": "step_without_communication"}.items():
        rows = timings[timings["phase"] == phase].set_index("run")
        for name in ("mean_ms", "std_ms"):
            table[f"{prefix}{name}"] = table["run"].map(rows[name]).astype("float64")
    table["cost_ms"] = table["mean_ms"] - table["without_mean_ms"]
    table["cost_share"] = table["cost_ms"] / table["mean_ms"]
    # steps with communication, and those of the same processes without, as if these were other runs
    as_runs = timings.assign(run=timings["run"] + " " + timings["phase"], phase="step")
    pairs = pd.DataFrame({"before": table["run"] + " step_without_communication", "after": table["run"] + " step"})
    judged = judge_wall_times(as_runs, pairs)
    for name in ("low", "high"):
        table[f"cost_{name}_ms"] = table["mean_ms"] * (1 - 1 / judged[name])
    table[["verdict", "used"]] = judged[["verdict", "used"]].where(table["cost_ms"].notna())

    names = ["step_ms", "exposed_communication_ms", "overlapped_ms", "communication_ms"]
    means = tables["communication_steps"].groupby("run")[names].mean()  # over ranks, which have as many captured steps
    step, exposed, overlapped, communication = (table["run"].map(means[name]).astype("float64") for name in names)
    table["exposed_ms"], table["exposed_share"], table["overlap"] = exposed, exposed / step, overlapped / communication
    naive = judge_wall_times(timings, find_pairs(runs, "parallel", "naive")).set_index("after")
    for name, column in {"naive_ratio": "ratio", "naive_verdict": "verdict", "naive_used": "used"}.items():
        table[name] = table["run"].map(naive[column])
    # the typical run has the median share of exposed communication (if none was captured: cost) of its way
    choices = [(table[(table["parallel"] == way) & table[column].notna()], column)
               for column in ("exposed_share", "cost_share") for way in ("ddp", "fsdp", "naive")]  # fmt: skip
    typical = next((find_middle(rows, column)["run"] for rows, column in choices if len(rows)), None)
    return table.assign(is_typical=table["run"] == typical)


def compare_with_one_gpu(runs: pd.DataFrame, timings: pd.DataFrame) -> pd.DataFrame:
    """communication_scaling: a row per run on several GPUs and kind of scaling for which a run on one GPU was timed. An
    efficiency of 1 is n times as fast with the same batch (strong), or as fast with n times the batch (weak)."""
    alike = [key for key in KEYS[1:] if key not in ("gpus", "parallel", "batch_size")]
    steps = timings[(timings["phase"] == "step") & timings["mean_ms"].notna()][["run", "mean_ms", "std_ms"]]
    steps = runs[KEYS].merge(steps, on="run").astype({"gpus": "int64", "batch_size": "int64"})
    several, one = steps[steps["gpus"] > 1], steps[steps["gpus"] == 1]
    one = one[["run", "mean_ms", "std_ms", "batch_size", *alike]].rename(
        columns={"run": "base_run", "mean_ms": "base_mean_ms", "std_ms": "base_std_ms", "batch_size": "base_batch"}
    )
    parts = []
    for kind, divisor in (("strong", 1), ("weak", several["gpus"])):
        table = several.assign(kind=kind, base_batch=several["batch_size"] / divisor)
        table = table.merge(one, on=[*alike, "base_batch"], validate="many_to_one")
        pairs = table[["base_run", "run"]].set_axis(["before", "after"], axis=1)
        judged, factor = judge_wall_times(timings, pairs), table["gpus"] if kind == "weak" else 1
        for name, ratio in {"speed_up": "ratio", "speed_up_low": "high", "speed_up_high": "low"}.items():
            table[name] = factor / judged[ratio]
        parts.append(table.assign(efficiency=table["speed_up"] / table["gpus"], used=judged["used"]))
    return pd.concat(parts, ignore_index=True)


def draw(steps: pd.DataFrame, times: pd.DataFrame, machine: str) -> alt.TopLevelMixin:
    """The figure: what fills a captured step of each run, as shares of the step, means over ranks."""
    rows = steps.groupby(KEYS, sort=False, dropna=False).mean(numeric_only=True).reset_index()
    if rows.empty:
        return charts.text_chart("No run on several GPUs was captured.")
    shown = charts.label_rows(rows, but=("batch_size", "gpus", "parallel"))
    texts = shown[["label", "batch_size", "gpus", "parallel"]].to_dict("records")
    shown["label"] = ["{label} · batch {batch_size} · {gpus} ranks · {parallel}".format(**row) for row in texts]
    shown = shown.assign(compute_ms=shown["compute_ms"] - shown["overlapped_ms"])
    bars = pd.concat(
        shown[["label"]].assign(part=part, order=order, share=shown[column] / shown["step_ms"])
        for order, (part, (column, _)) in enumerate(PARTS.items())
    )
    color = alt.Scale(domain=list(PARTS), range=[color for _, color in PARTS.values()])
    chart = alt.Chart(bars).mark_bar().encode(
        x=alt.X("share:Q", title="share of a captured step", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
        y=charts.label_axis(bars), order="order:Q", tooltip=["label", "part", alt.Tooltip("share:Q", format=".1%")],
        color=alt.Color("part:N", scale=color, legend=alt.Legend(columns=3)),
    ).properties(width=charts.WIDTH - 280, height=alt.Step(20))  # fmt: skip
    medians = times.groupby("parallel", sort=False)["exposed_share"].median().dropna()
    shares = ", ".join(f"{percent(share)} with {way}" for way, share in medians.items())
    return charts.titled(
        chart, f"Part of a step that is exposed communication: {shares}",
        "What fills a step under the profiler (mean of all ranks; of several runs, the title has the median)",
        machine,
    )  # fmt: skip


def main(inputs: list[str], outputs: list[str]) -> None:
    tables = read_tables(inputs)
    times = compare_steps(tables)
    scaling = compare_with_one_gpu(tables["runs"], tables["timings"])
    write_tables({"communication_times": times, "communication_scaling": scaling}, outputs)
    machine = describe_machine(tables["runs"])
    charts.save_all({"communication": draw(tables["communication_steps"], times, machine)}, outputs)


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
