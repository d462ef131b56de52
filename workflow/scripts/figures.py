"""From tables to the figures of (a) to (e): phase_times, class_shares, top_kernels, attention, roofline
and scaling, each as .svg and .png. GPU time is the time in which anything ran."""

import re
from collections.abc import Iterable
from pathlib import Path

import altair as alt
import pandas as pd

from kernel_tables.classes import family
from kernel_tables.output import percent
from workflow import charts, text
from workflow.peaks import peak_bytes_per_s, peak_flop_per_s
from workflow.tables import read_tables, sort_runs
from workflow.text import MODES, choose_modes, describe_run, prefer_defaults, write_number, write_range

CONTEXT = alt.X("context_length:O", title="context length (tokens)", axis=alt.Axis(labelAngle=0))
SIZES = ["num_layers", "num_heads", "d_model", "d_ff", "vocab_size"]
Figure = tuple[alt.TopLevelMixin, str] | None  # the chart and its result in a sentence; None if there is no data


def main(inputs: list[str], outputs: list[str], figures: Iterable[str] = ()) -> None:
    """Draws the outputs; removes other figures in their folder, unless they are named in `figures`."""
    tables = read_tables(inputs)
    runs = tables["runs"]
    failed = runs[~runs[["timing_status", "capture_status"]].isin(["complete", "not_asked"]).all(axis=1)]["run"]
    names = [describe_run(runs, run) for run in failed[:3]] + ["…"] * (len(failed) > 3)
    notes = [text.describe_machine(runs), *(["Not measured: " + "; ".join(names)] if names else [])]
    charted = {}
    for name in dict.fromkeys(Path(path).stem for path in outputs):
        draw, quantity = DRAWN[name]
        chart, result = draw(tables) or (charts.text_chart("No complete run has what this figure shows."), "No data")
        if "cuda" not in set(runs["device"]):
            words = {"^GPU time": "Operator time", "GPU time": "operator time", "GPU": "CPU", "^Kernel": "Operator",
                     "kernel": "operator"}  # fmt: skip
            for word, on_cpu in words.items():
                result, quantity = re.sub(word, on_cpu, result), re.sub(word, on_cpu, quantity)
        charted[name] = charts.titled(chart, result, quantity, *notes)
    charts.save_all(charted, outputs)
    for path in Path(outputs[0]).parent.iterdir() if figures else ():
        if path.suffix in (".svg", ".png") and path.stem not in {*figures, *charted}:
            path.unlink()  # of an earlier grid


def average_phases(tables: dict[str, pd.DataFrame], modes: slice) -> pd.DataFrame:
    """By run and phase, GPU time and time without a profiler in ms, with the leading columns and `series`: of the modes
    chosen, and without what is not at its default (gains have figures of their own)."""
    phases, keys = tables["phases"], ["run", "phase"]
    busy = phases[phases["gpu_busy_ns"] > 0].groupby(keys)["gpu_busy_ns"].mean().div(1e6).rename("GPU time")
    wall = tables["timings"].set_index(keys)["mean_ms"].rename("without a profiler").astype("float64")
    rows = pd.concat([busy, wall], axis=1).reset_index().merge(tables["runs"], on="run")
    rows = prefer_defaults(sort_runs(rows[rows["mode"].isin(choose_modes(rows)[modes])], tables["runs"]))
    return charts.label_rows(rows, but=("mode", "context_length")).rename(columns={"label": "series"})


def draw_times(rows: pd.DataFrame, x: alt.X, series: str, order: pd.DataFrame, width: int) -> alt.LayerChart:
    """A line in GPU time per value of `series`, in the order of another frame; hollow marks without a profiler."""
    looks = {"color": charts.series_color(order, series, width), "shape": charts.series_shape(order, series, width)}
    base = alt.Chart(rows).encode(x=x, y="GPU time:Q", **looks)
    lines = alt.Chart(rows).mark_line().encode(x=x, y=charts.log_axis(alt.Y, "GPU time", None), color=looks["color"])
    hollow = base.mark_point(filled=False, strokeWidth=1).encode(y="without a profiler:Q")
    return alt.layer(lines, base.mark_point(filled=True), hollow)


def draw_phase_times(tables: dict[str, pd.DataFrame]) -> Figure:
    """(d) The phases of the fullest step by context length."""
    rows = average_phases(tables, slice(-1, None))
    names = [name for name in ("forward", "backward", "optimizer") if name in set(rows["phase"])] or ["step"]
    rows = rows[rows["phase"].isin(names)]
    if rows["GPU time"].isna().all():
        return None
    panels, means = [], []
    for name in names:
        part = rows[rows["phase"] == name]
        panel = draw_times(part, CONTEXT, "series", rows, charts.WIDTH)
        panels.append(panel.properties(title=f"{name}, ms", width=200, height=220))
        means.append(f"{name} {write_range(part['GPU time'])} ms")
    return alt.hconcat(*panels), f"GPU time of a {MODES[rows['mode'].iloc[0]]}: {', '.join(means)}"


def draw_scaling(tables: dict[str, pd.DataFrame]) -> Figure:
    """(a) The forward pass, or the shortest step, by the parameters of the model and by context length."""
    rows = average_phases(tables, slice(1))
    rows = rows[rows["phase"] == "step"]
    if rows["GPU time"].isna().all():
        return None
    others = charts.label_rows(rows, but=("mode", "model"))["label"]
    rows = rows.assign(length=others.map("context {}".format), mparameters=rows["parameters"].astype("float64") / 1e6)
    by_length = rows.sort_values("context_length", kind="stable")
    parameters = charts.log_axis(alt.X, "mparameters", "parameters, million")
    panels = draw_times(rows, parameters, "length", by_length, 340), draw_times(rows, CONTEXT, "series", rows, 340)
    result = f"A {MODES[rows['mode'].iloc[0]]} takes {write_range(rows['GPU time'])} ms of GPU time"
    lengths, times = rows["context_length"], by_length.groupby("series")["GPU time"]
    if lengths.nunique() > 1:
        growth = (times.last() / times.first())[times.size() == lengths.nunique()]
        result += f"; {lengths.max() / lengths.min():g} times the context takes {write_range(growth)} times as long"
    panels = [panel.properties(title="ms", width=320, height=260) for panel in panels]
    return alt.hconcat(*panels).resolve_scale(color="independent", shape="independent"), result


def draw_class_shares(tables: dict[str, pd.DataFrame]) -> Figure:
    """(c, d) Classes as shares of GPU time: a bar per run, a panel for inference and one for training."""
    table = tables["class_shares"]
    table = table[(table["phase"] == "all phases") & table["mode"].isin(choose_modes(table))]
    if table.empty:
        return None
    rows = charts.label_rows(table.assign(**{"class": table["class"].map(family)}))
    rows = rows.groupby(["mode", "label", "class"], sort=False)["share"].sum().reset_index()
    parts = {MODES[mode]: rows[rows["mode"] == mode] for mode in choose_modes(rows)}
    gemm = rows[rows["class"] == "gemm"].set_index(["mode", "label"])["share"]
    gemm = gemm.reindex(rows.set_index(["mode", "label"]).index.unique(), fill_value=0)
    results = [f"{write_range(gemm[mode], 'percent')} of a {MODES[mode]}" for mode in choose_modes(rows)]
    return draw_shares(parts, "class"), f"Matrix multiplies (gemm) take {', '.join(results)}"


def draw_attention(tables: dict[str, pd.DataFrame]) -> Figure:
    """(e) The parts of attention as shares of its GPU time, and of its FLOPs."""
    table = tables["attention"]
    table = table[(table["part"] != "scaled dot product attention") & table["mode"].isin(choose_modes(table)[:1])]
    if table.empty:
        return None
    rows, parts = charts.label_rows(table), {}
    for title, column in {"share of time": "gpu_time_ms", "share of FLOPs": "flops_per_layer"}.items():
        parts[title] = rows.assign(share=rows[column] / rows.groupby("run")[column].transform("sum"))
    softmax = table[table["part"] == "computing softmax"]
    result = (
        f"Softmax takes {write_range(softmax['runtime_to_matmuls'])} times as long as both matrix multiplies of"
        f" attention, with {write_range(softmax['flops_to_matmuls'], 'percent')} of their FLOPs"
    )
    return draw_shares(parts, "part"), result


def draw_shares(parts: dict[str, pd.DataFrame], column: str) -> alt.HConcatChart:
    """A panel per title: a bar of `share` per label, stacked by `column`, with the percentages that have room."""
    rows = pd.concat(parts.values())
    # bars of a figure that is read in ten seconds
    labels, names = list(dict.fromkeys(rows["label"]))[-24:], charts.sort_parts(rows[column])
    is_dark = alt.FieldOneOfPredicate(column, [name for name in names if charts.PARTS.get(name) in charts.DARK])
    x = alt.X("share:Q", title=None, axis=alt.Axis(format="%", tickCount=5), scale=alt.Scale(domain=[0, 1], clamp=True))
    panels = []
    for title, part in parts.items():
        part = part[part["label"].isin(labels)].assign(order=part[column].map(names.index))
        part = part.sort_values(["label", "order"])
        middle = part.groupby("label")["share"].cumsum() - part["share"] / 2
        part = part.assign(middle=middle, text=(100 * part["share"]).map("{:.0f}".format))
        axis = None if panels else alt.Axis()  # labels stand once, on the left
        y = alt.Y("label:N", title=None, sort=labels, scale=alt.Scale(domain=labels), axis=axis)
        bars = alt.Chart(part).mark_bar(stroke="white", strokeWidth=0.5).encode(
            x=x.stack("zero"), y=y, color=charts.part_color(rows, column), order="order:Q"
        )  # fmt: skip
        texts = alt.Chart(part[part["share"] >= 0.05]).mark_text(fontSize=9)
        color = alt.condition(is_dark, alt.value("white"), alt.value(charts.INK))
        layers = alt.layer(bars, texts.encode(x="middle:Q", y=y, text="text", color=color))
        panels.append(layers.properties(title=title, width=300, height=alt.Step(20)))
    return alt.hconcat(*panels)


def draw_top_kernels(tables: dict[str, pd.DataFrame]) -> Figure:
    """(b) The kernels with the most time of the median run of training, in its forward pass and in all of it."""
    table = tables["top_kernels"]
    first = table[(table["rank"] == 1) & (table["scope"] == "all phases")]
    first = first[first["mode"].isin(choose_modes(first)[-1:])]
    if first.empty:
        return None
    first = text.find_middle(first, "share")
    rows = table[table["run"] == first["run"]]
    times, shares = rows["gpu_time_ms"].map(write_number), rows["share"].map(percent)
    label = times + " ms, " + shares + ", " + rows["invocations"].map("{:.0f}×".format)
    kernels = text.shorten(rows["kernel"], table)
    rows = rows.assign(kernel=kernels, family=rows["class"].map(family), text=label)
    panels, scale = [], alt.Scale(domain=[0, rows["gpu_time_ms"].max() * 1.35], nice=False)
    for scope, title in {"forward": "its forward pass", "all phases": f"all of a {MODES[first['mode']]}"}.items():
        part = rows[rows["scope"] == scope]
        x = alt.X("gpu_time_ms:Q", title="ms", scale=scale)
        base = alt.Chart(part).encode(x=x, y=charts.label_axis(part, "kernel"))
        bars = base.mark_bar().encode(color=charts.part_color(rows, "family"))
        labels = base.mark_text(align="left", dx=5).encode(text="text")
        panels.append(alt.layer(bars, labels).properties(title=title, width=480, height=alt.Step(20)))
    result = f"{kernels[first.name]} takes {percent(first['share'])} of the GPU time of"
    return alt.vconcat(*panels), f"{result} {describe_run(tables['runs'], first['run'])}"


def draw_roofline(tables: dict[str, pd.DataFrame]) -> Figure:
    """The parts of the largest forward pass: FLOP/s against FLOPs for each byte that a part has to move, by shapes."""
    rows = prefer_defaults(tables["forward_parts"].merge(tables["runs"], how="left").dropna(subset=SIZES))
    rows = rows[rows["mode"].isin(choose_modes(rows)[:1])].sort_values("forward_flops", kind="stable")
    rows = rows[rows["run"] == rows["run"].iloc[-1]].merge(list_work(rows.iloc[-1]), on="part") if len(rows) else rows
    if rows.empty:
        return None
    rows = rows.assign(intensity=rows["flops"] / rows["bytes"], tera=rows["flops"] / rows["gpu_time_ms"] / 1e9)
    best = rows.loc[rows["tera"].idxmax()]
    peak = peak_flop_per_s(best["device_name"], best["precision"])
    result = f"At most {write_number(best['tera'])} TFLOP/s, by {best['part']}"
    if peak > 0:
        result += f": {percent(1e12 * best['tera'] / peak)} of the peak in {best['precision']}"
    color, roofs = charts.series_color(rows, "part"), {best["precision"]: peak}
    chart = charts.draw_roofline(rows, roofs, peak_bytes_per_s(best["device_name"]), color=color)
    chart = chart.properties(title=describe_run(tables["runs"], best["run"]), width=charts.WIDTH - 80, height=300)
    return chart, result


def list_work(run: pd.Series) -> pd.DataFrame:
    """By part of the model, FLOPs in one forward pass, and the bytes that it moves at least: operands and results."""
    layers, heads, width, length = run["num_layers"], run["num_heads"], run["d_model"], run["context_length"]
    tokens, products = run["batch_size"] * length, layers * run["batch_size"] * heads
    multiplies = {  # how many there are; rows, inner size and columns of each
        "qkv projection": (3 * layers, tokens, width, width),
        "output projection": (layers, tokens, width, width),
        "feed-forward": (3 * layers, tokens, width, run["d_ff"]),
        "head": (1, tokens, width, run["vocab_size"]),
        "computing attention scores": (products, length, width / heads, length),
        "final matmul": (products, length, length, width / heads),
    }
    work = [(part, 2 * n * a * b * c, n * (a * b + b * c + a * c)) for part, (n, a, b, c) in multiplies.items()]
    work.append(("computing softmax", 5 * products * length**2, 2 * products * length**2))
    table = pd.DataFrame(work, columns=["part", "flops", "bytes"])
    return table.assign(bytes=table["bytes"] * (2 if run["precision"] in ("bf16-weights", "bf16", "fp16") else 4))


DRAWN = {  # by name: the function, and the quantity that is shown
    "scaling": (draw_scaling, "Time of a pass, ms: GPU time (lines), without a profiler (hollow marks)"),
    "top_kernels": (draw_top_kernels, "The five kernels with the most GPU time: ms, share and launches in one pass"),
    "class_shares": (draw_class_shares, "Kernel classes as shares of the time of all kernels and memory operations"),
    "phase_times": (draw_phase_times, "Time of each phase, ms: GPU time (lines), without a profiler (hollow marks)"),
    "attention": (draw_attention, "Parts of attention in the forward pass as shares of its GPU time and of its FLOPs"),
    "roofline": (draw_roofline, "FLOP/s of each part of the forward pass against FLOP per byte, from the shapes"),
}

if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output), list(snakemake.params.figures))
