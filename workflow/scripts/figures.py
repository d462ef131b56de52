"""From tables to the figures of (a) to (e): phase_times, class_shares, top_kernels, attention, roofline
and scaling, each as .svg and .png. GPU time is the time in which anything ran."""

from collections.abc import Iterable
from pathlib import Path

import altair as alt
import numpy as np
import pandas as pd

from kernel_tables.classes import family
from workflow import charts
from workflow.peaks import peak_bytes_per_s, peak_flop_per_s
from workflow.tables import read_tables, sort_runs
from workflow.text import MODES, describe_machine, describe_run, shorten, write_number, write_percent, write_range

CONTEXT = alt.X("context_length:O", title="context length (tokens)", axis=alt.Axis(labelAngle=0))
ATTENTION_PARTS = ["computing attention scores", "final matmul", "mask and scale", "computing softmax"]
MAX_BARS = 24  # of a figure that is read in ten seconds
Figure = tuple[alt.TopLevelMixin, str] | None  # the chart and its result in a sentence; None if there is no data


def main(inputs: list[str], outputs: list[str], figures: Iterable[str] = ()) -> None:
    """Draws the outputs; removes other figures in their folder, unless they are named in `figures`."""
    tables = read_tables(inputs)
    runs = tables["runs"]
    failed = runs[~runs[["timing_status", "capture_status"]].isin(["complete", "not_asked"]).all(axis=1)]["run"]
    texts = [describe_run(runs, run) for run in failed[:3]] + ["…"] * (len(failed) > 3)
    notes = [describe_machine(runs), *(["Not measured: " + "; ".join(texts)] if texts else [])]
    charted = {}
    for name in dict.fromkeys(Path(path).stem for path in outputs):
        draw, quantity = DRAWN[name]
        chart, result = draw(tables) or (charts.text_chart("No complete run has what this figure shows."), "No data")
        if "cuda" not in set(runs["device"]):
            words = [text.replace("GPU time", "operator time").replace("GPU", "CPU") for text in (result, quantity)]
            result, quantity = (text[:1].upper() + text[1:] for text in words)
        charted[name] = charts.titled(chart, result, quantity, *notes)
    charts.save_all(charted, outputs)
    for path in Path(outputs[0]).parent.iterdir() if figures else ():
        if path.suffix in (".svg", ".png") and path.stem not in {*figures, *charted}:
            path.unlink()  # of an earlier grid


def average_phases(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """By run and phase, GPU time and time without a profiler in ms, with the leading columns and `series`."""
    phases, keys = tables["phases"], ["run", "phase"]
    busy = phases[phases["gpu_busy_ns"] > 0].groupby(keys)["gpu_busy_ns"].mean().div(1e6).rename("GPU time")
    wall = tables["timings"].set_index(keys)["mean_ms"].rename("without a profiler").astype("float64")
    rows = pd.concat([busy, wall], axis=1).reset_index().merge(tables["runs"], on="run")
    return charts.label_rows(rows, but=("mode", "context_length")).rename(columns={"label": "series"})


def choose_modes(rows: pd.DataFrame) -> list[str]:
    """Inference and training: the modes with the fewest and with the most phases that there are."""
    modes = [mode for mode in MODES if mode in set(rows["mode"])]
    return list(dict.fromkeys([modes[0], modes[-1]])) if modes else []


def draw_phase_times(tables: dict[str, pd.DataFrame]) -> Figure:
    """(a) The phases of the fullest step by context length: lines in GPU time, hollow marks without a profiler."""
    rows = average_phases(tables)
    rows = rows[rows["mode"].isin(choose_modes(rows)[-1:])]
    names = [name for name in ("forward", "backward", "optimizer") if name in set(rows["phase"])] or ["step"]
    rows = sort_runs(rows[rows["phase"].isin(names)], tables["runs"])
    if rows.empty or rows["GPU time"].isna().all():
        return None
    mode, panels = MODES[rows["mode"].iloc[0]], []
    for name in names:
        part = rows[rows["phase"] == name]
        base = alt.Chart(part).encode(x=CONTEXT, color=charts.series_color(rows, "series"))
        y, shape = charts.log_axis(alt.Y, "GPU time", None), charts.series_shape(rows, "series")
        lines, marks = base.mark_line().encode(y=y), base.mark_point(filled=True).encode(y="GPU time:Q", shape=shape)
        hollow = base.mark_point(filled=False, strokeWidth=1).encode(y="without a profiler:Q", shape=shape)
        panels.append(alt.layer(lines, marks, hollow).properties(title=f"{name}, ms", width=200, height=220))
    means = [f"{name} {write_range(rows.loc[rows['phase'] == name, 'GPU time'])} ms" for name in names]
    return alt.hconcat(*panels), f"GPU time of a {mode}: {', '.join(means)}"


def draw_class_shares(tables: dict[str, pd.DataFrame]) -> Figure:
    """(c, d) Classes as shares of GPU time: a bar per run, a panel for inference and one for training."""
    table = tables["class_shares"]
    table = table[(table["phase"] == "all phases") & table["mode"].isin(modes := choose_modes(table))]
    if table.empty:
        return None
    rows = table.assign(**{"class": table["class"].map(family)})
    rows = charts.label_rows(rows).groupby(["mode", "label", "class"], sort=False)["share"].sum().reset_index()
    labels, panels, results = list(dict.fromkeys(rows["label"]))[-MAX_BARS:], [], []
    for mode in modes:
        part = rows[(rows["mode"] == mode) & rows["label"].isin(labels)]
        scale, axis = alt.Scale(domain=labels), None if panels else alt.Axis()
        y = alt.Y("label:N", title=None, sort=labels, scale=scale, axis=axis)
        panels.append(draw_shares(part, "class", rows, y).properties(title=MODES[mode], width=300, height=alt.Step(20)))
        gemm = part[part["class"] == "gemm"].set_index("label")["share"].reindex(part["label"].unique(), fill_value=0)
        results.append(f"{write_range(gemm, 'percent')} of a {MODES[mode]}")
    return alt.hconcat(*panels), f"Matrix multiplies (gemm) take {', '.join(results)}"


def draw_shares(part: pd.DataFrame, column: str, rows: pd.DataFrame, y: alt.Y) -> alt.LayerChart:
    """Bars of `share` stacked by `column`, with the percentages of those that have room for it."""
    order = {name: number for number, name in enumerate(charts.sort_parts(rows[column]))}
    part = part.assign(order=part[column].map(order)).sort_values(["label", "order"])
    end = part.groupby("label")["share"].cumsum()
    part = part.assign(middle=end - part["share"] / 2, text=part["share"].map(lambda share: f"{100 * share:.0f}"))
    x = alt.X("share:Q", title=None, axis=alt.Axis(format="%", tickCount=5), scale=alt.Scale(domain=[0, 1], clamp=True))
    bars = alt.Chart(part).mark_bar(stroke="white", strokeWidth=0.5).encode(
        x=x.stack("zero"), y=y, color=charts.part_color(rows, column), order="order:Q"
    )  # fmt: skip
    dark = (charts.BLUE, charts.VERMILLION, charts.GREEN, "#117733", "#882255", "#b5651d")
    dark = [name for name in order if charts.PARTS.get(name) in dark]
    color = alt.condition(alt.FieldOneOfPredicate(column, dark), alt.value("white"), alt.value(charts.INK))
    texts = alt.Chart(part[part["share"] >= 0.05]).mark_text(fontSize=9)
    return alt.layer(bars, texts.encode(x="middle:Q", y=y, text="text", color=color))


def draw_top_kernels(tables: dict[str, pd.DataFrame]) -> Figure:
    """(b) The kernels with the most time of the run with the most, in its forward pass and in the entire step."""
    table = tables["top_kernels"]
    if table.empty:
        return None
    whole = table[table["scope"] == "all phases"]
    run = whole.assign(ms=whole["gpu_time_ms"] / whole["share"]).sort_values("ms", kind="stable")["run"].iloc[-1]
    rows = table[table["run"] == run]
    rows = charts.label_rows(rows.assign(kernel=shorten(rows["kernel"], table), family=rows["class"].map(family)))
    name = f"{rows['label'].iloc[0]} · {MODES[rows['mode'].iloc[0]]}"
    scopes = {"forward": "its forward pass", "all phases": f"all of one {MODES[rows['mode'].iloc[0]]}"}
    panels, furthest = [], rows["gpu_time_ms"].max() * 1.35
    for scope, title in scopes.items():
        part = rows[rows["scope"] == scope]
        texts = zip(part["gpu_time_ms"], part["share"], part["invocations"], strict=True)
        part = part.assign(text=[f"{write_number(ms)} ms, {write_percent(share)}, {n:.0f}×" for ms, share, n in texts])
        x = alt.X("gpu_time_ms:Q", title="ms", scale=alt.Scale(domain=[0, furthest], nice=False))
        base = alt.Chart(part).encode(x=x, y=charts.label_axis(part, "kernel"))
        bars = base.mark_bar().encode(color=charts.part_color(rows, "family"))
        labels = base.mark_text(align="left", dx=5).encode(text="text")
        panels.append(alt.layer(bars, labels).properties(title=title, width=480, height=alt.Step(20)))
    first = rows[(rows["scope"] == "all phases") & (rows["rank"] == 1)].iloc[0]
    result = f"The top kernel, {first['kernel']}, takes {write_percent(first['share'])} of the GPU time of {name}"
    return alt.vconcat(*panels), result


def draw_attention(tables: dict[str, pd.DataFrame]) -> Figure:
    """(e) The parts of attention as shares of its GPU time, and of its FLOPs."""
    table = tables["attention"]
    table = table[table["part"].isin(ATTENTION_PARTS) & (table["mode"].isin(choose_modes(table)[:1]))]
    if table.empty:
        return None
    rows = charts.label_rows(table)
    labels, panels = list(dict.fromkeys(rows["label"]))[-MAX_BARS:], []
    rows = rows[rows["label"].isin(labels)]
    for title, column in {"share of time": "gpu_time_ms", "share of FLOPs": "flops_per_layer"}.items():
        part = rows.assign(share=rows[column].astype("float64") / rows.groupby("run")[column].transform("sum"))
        y = alt.Y("label:N", title=None, sort=labels, axis=None if panels else alt.Axis())
        panels.append(draw_shares(part, "part", rows, y).properties(title=title, width=300, height=alt.Step(20)))
    softmax = table[table["part"] == "computing softmax"]
    result = (
        f"Softmax takes {write_range(softmax['runtime_to_matmuls'])} times as long as both matrix multiplies of"
        f" attention, with {write_range(softmax['flops_to_matmuls'], 'percent')} of their FLOPs"
    )
    return alt.hconcat(*panels), result


def draw_roofline(tables: dict[str, pd.DataFrame]) -> Figure:
    """Every part's FLOP/s against the FLOPs for each byte that it has to move, both from the shapes."""
    table = tables["forward_parts"].merge(tables["runs"], how="left")
    table = table[table["mode"].isin(choose_modes(table)[:1]) & (table["compile"] == "off")]
    sizes = ["num_layers", "num_heads", "d_model", "d_ff", "vocab_size"]
    table = table[table[sizes].notna().all(axis=1)].astype(dict.fromkeys(sizes, "float64"))
    if table.empty:
        return None
    table = table[table["context_length"] == table["context_length"].max()]
    table = table[table["precision"] == table["precision"].iloc[0]]
    work = pd.DataFrame([list_work(row) for row in table.to_dict("records")], columns=["flops", "bytes"])
    tera = work["flops"] / table["gpu_time_ms"].to_numpy() / 1e9
    rows = table.reset_index(drop=True).assign(intensity=work["flops"] / work["bytes"], tera=tera)
    rows = rows[rows["tera"].notna()]
    if rows.empty:
        return None
    rows = sort_runs(charts.label_rows(rows, but=("mode", "context_length")), tables["runs"])
    precision, device, best = rows["precision"].iloc[0], rows["device_name"].iloc[0], rows.loc[rows["tera"].idxmax()]
    peak, parts = peak_flop_per_s(device, precision), list(dict.fromkeys(rows["part"]))
    rate = f"{write_number(best['tera'])} TFLOP/s"
    of_peak = f"{write_percent(1e12 * best['tera'] / peak)} of the peak in {precision}" if peak > 0 else "no known peak"
    result = f"At context {best['context_length']}, {best['part']} reaches the most: {rate}, {of_peak}"
    scale, legend = alt.Scale(domain=parts, range=charts.SERIES[: len(parts)]), alt.Legend(orient="right")
    color = alt.Color("part:N", title=None, scale=scale, legend=legend)
    shape = charts.series_shape(rows, "label").legend(orient="right")
    chart = charts.draw_roofline(rows, {precision: peak}, peak_bytes_per_s(device), color=color, shape=shape)
    return chart.properties(width=500, height=320), result


def list_work(row: dict) -> tuple[float, float]:
    """FLOPs of a part in one forward pass, and the bytes that it moves at least: operands and results once."""
    number = 2 if row["precision"] in ("bf16-weights", "bf16", "fp16") else 4
    width, hidden, layers, heads = row["d_model"], row["d_ff"], row["num_layers"], row["num_heads"]
    tokens, length = row["batch_size"] * row["context_length"], row["context_length"]
    scores = row["batch_size"] * heads * length**2

    def multiply(rows: float, inner: float, columns: float, count: float) -> tuple[float, float]:
        sizes = rows * inner + inner * columns + rows * columns
        return 2 * rows * inner * columns * count, sizes * count * number

    both = multiply(length, width / heads, length, layers * row["batch_size"] * heads)
    parts = {
        "qkv projection": multiply(tokens, width, width, 3 * layers),
        "output projection": multiply(tokens, width, width, layers),
        "feed-forward": multiply(tokens, width, hidden, 3 * layers),
        "head": multiply(tokens, width, row["vocab_size"], 1),
        "computing attention scores": both,
        "final matmul": both,
        "computing softmax": (5 * scores * layers, 2 * scores * layers * number),
    }
    return parts.get(row["part"], (np.nan, np.nan))


def draw_scaling(tables: dict[str, pd.DataFrame]) -> Figure:
    """GPU time of a step by the parameters of the model, and by context length."""
    rows = average_phases(tables)
    rows = rows[(rows["phase"] == "step") & rows["mode"].isin(choose_modes(rows)[-1:])]
    rows["ms"] = rows["GPU time"].fillna(rows["without a profiler"])
    rows = sort_runs(rows[rows["ms"].notna()], tables["runs"])
    if rows.empty:
        return None
    others = charts.label_rows(rows, but=("mode", "model"))["label"]
    rows = rows.assign(length=others.map("context {}".format), mparameters=rows["parameters"].astype("float64") / 1e6)
    rows = rows.sort_values("context_length", kind="stable")
    panels = []
    parameters = charts.log_axis(alt.X, "mparameters", "parameters, million")
    for x, series in ((parameters, "length"), (CONTEXT, "series")):
        order = rows if series == "length" else sort_runs(rows, tables["runs"])
        color, shape = charts.series_color(order, series, 340), charts.series_shape(order, series, 340)
        base = alt.Chart(rows).encode(x=x, y=charts.log_axis(alt.Y, "ms", "ms"), color=color)
        marks = base.mark_point(filled=True).encode(shape=shape)
        panels.append(alt.layer(base.mark_line(), marks).properties(width=320, height=260))
    growth = rows.sort_values("context_length").groupby("series")["ms"].apply(lambda ms: ms.iloc[-1] / ms.iloc[0])
    lengths = rows["context_length"]
    result = f"A {MODES[rows['mode'].iloc[0]]} takes {write_range(rows['ms'])} ms of GPU time"
    if lengths.nunique() > 1:
        factor = f"{lengths.max() / lengths.min():g}"
        result += f"; {factor} times the context takes {write_range(growth[growth > 1])} times as long"
    return alt.hconcat(*panels).resolve_scale(color="independent", shape="independent"), result


DRAWN = {  # by name: the function, and the quantity that is shown
    "phase_times": (draw_phase_times, "Time of each phase, ms: GPU time (lines), without a profiler (hollow marks)"),
    "class_shares": (draw_class_shares, "Kernel classes as shares of the time of all kernels and memory operations"),
    "top_kernels": (draw_top_kernels, "The five kernels with the most GPU time: ms, share and launches in one pass"),
    "attention": (draw_attention, "Parts of attention in the forward pass as shares of its GPU time and of its FLOPs"),
    "roofline": (draw_roofline, "FLOP/s of each part of the forward pass against FLOP per byte, from the shapes"),
    "scaling": (draw_scaling, "GPU time of a step, ms, against parameters and against context length"),
}

if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output), list(snakemake.params.figures))
