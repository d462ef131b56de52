"""From the merged tables to a table per question (a) to (e), with means over the captured steps.

GPU time is the sum of the durations of kernels and memory operations (without a GPU: of outermost operators), even if
they overlap; it is that of one pass or step, in which a kernel that does not run counts as zero.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from kernel_tables.attribution import innermost, names_in
from kernel_tables.classes import family
from workflow.tables import KEYS, make_table, read_tables, sort_runs, write_table

SCORES, SOFTMAX, VALUES = "computing attention scores", "computing softmax", "final matmul"
NO_RANGE, ALL_PHASES, RECOMPUTATION = "(no inner range)", "all phases", "recomputation"
# FLOPs of one layer for each of its B·H·S² scores: (times d_head, alone). Of P = softmax(S): dS = P (dP - sum of P dP).
FORWARD_FLOPS = {
    SCORES: ("2·B·H·S²·d_head", 2, 0), "mask and scale": ("B·H·S² (the scale)", 0, 1), SOFTMAX: ("5·B·H·S²", 0, 5),
    VALUES: ("2·B·H·S²·d_head", 2, 0), "scaled dot product attention": ("4·B·H·S²·d_head + 6·B·H·S²", 4, 6),
}  # fmt: skip
BACKWARD_FLOPS = {
    SCORES: ("4·B·H·S²·d_head", 4, 0), "mask and scale": ("B·H·S² (the scale)", 0, 1), SOFTMAX: ("4·B·H·S²", 0, 4),
    VALUES: ("4·B·H·S²·d_head", 4, 0), "scaled dot product attention": ("8·B·H·S²·d_head + 5·B·H·S²", 8, 5),
}  # fmt: skip


def main(inputs: list[str], outputs: list[str]) -> None:
    """Reads the merged tables runs, timings, phases, kernels, ranges and, if it is there, warmup_steps; writes the
    tables that the outputs name."""
    tables = read_tables(inputs)
    runs, phases, ranges = tables["runs"], tables["phases"], tables["ranges"]
    kernels = tables["kernels"].query("step >= 0").drop(columns=KEYS[1:])
    kernels["range"] = kernels["range"].astype("object").fillna("")
    steps = phases[phases["phase"] == "step"].groupby("run")["step"].nunique()
    makers = {
        "forward_time": lambda: summarize_forward(runs, tables["timings"], phases, tables.get("warmup_steps")),
        "top_kernels": lambda: rank_kernels(runs, kernels, steps),
        "forward_parts": lambda: share_parts(kernels, steps),
        "class_shares": lambda: share_classes(kernels, steps),
        "training_parts": lambda: share_training_parts(kernels, steps),
        "attention": lambda: measure_attention(runs, kernels, ranges, steps, "forward", FORWARD_FLOPS),
        "attention_backward": lambda: measure_attention(runs, kernels, ranges, steps, "backward", BACKWARD_FLOPS),
    }
    for path in outputs:
        name = Path(path).stem
        if path.endswith(".parquet"):
            table = makers[name]() if len(kernels) or name == "forward_time" else pd.DataFrame()
            write_table(add_keys(table, runs) if len(table) else make_table(name), path)


def add_keys(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The table with the leading columns of its runs, in the order of these; otherwise its order stays."""
    keys = [name for name in KEYS[1:] if name not in table]
    return sort_runs(table, runs).merge(runs[["run", *keys]], on="run", validate="m:1")


def summarize_forward(
    runs: pd.DataFrame, timings: pd.DataFrame, phases: pd.DataFrame, warmup_steps: pd.DataFrame | None
) -> pd.DataFrame:
    """(a) Every run's forward pass on the host and on the GPU, and its step with and without the profiler."""
    times = {name: name.replace("_ns", "_ms") for name in phases if name.endswith("_ns")}
    with_kernels = phases["run"].isin(phases.loc[phases["kernels"] > 0, "run"])  # then no kernel in a phase is a fact
    values = phases[["run", "phase", "kernels", *times]].rename(columns=times).astype({"kernels": "float64"})
    values[list(times.values())] = values[list(times.values())].astype("float64") / 1e6
    values.loc[~with_kernels, [name for name in values if name not in ("run", "phase", "wall_ms")]] = np.nan
    grouped = values.groupby(["phase", "run"])
    mean = grouped.mean().join(grouped.std().add_suffix("_std"))
    step, forward = (mean.loc[phase] if phase in mean.index else mean[:0].droplevel(0) for phase in ("step", "forward"))
    table = runs[KEYS].set_index("run", drop=False)
    for name in ("wall", "gpu_span", "gpu_busy"):
        table[f"forward_{name}_ms"], table[f"forward_{name}_std_ms"] = forward[f"{name}_ms"], forward[f"{name}_ms_std"]
    table["step_wall_ms"], table["step_wall_std_ms"] = step["wall_ms"], step["wall_ms_std"]
    python = timings[timings["phase"] == "step"].set_index("run").astype({"mean_ms": "float64", "std_ms": "float64"})
    table["unprofiled_step_ms"], table["unprofiled_step_std_ms"] = python["mean_ms"], python["std_ms"]
    table["mean_kernel_us"] = 1e3 * forward["kernel_ms"] / forward["kernels"]
    table["launch_us"] = 1e3 * forward["wall_ms"] / forward["kernels"]
    table["idle_share"] = 1 - step["gpu_busy_ms"] / step["wall_ms"]
    is_slower = table["launch_us"] > table["mean_kernel_us"]
    table["launch_bound"] = (table["idle_share"] >= 0.15) & is_slower & (runs["device"] == "cuda").values
    table["overhead_ratio"] = table["step_wall_ms"] / table["unprofiled_step_ms"]
    stds = [table[f"{name}_std_ms"] / table[f"{name}_ms"] for name in ("step_wall", "unprofiled_step")]
    table["overhead_ratio_std"] = table["overhead_ratio"] * (stds[0] ** 2 + stds[1] ** 2) ** 0.5
    matches = ((table["overhead_ratio"] - 1).abs() <= 0.05).astype("boolean")
    table["matches_python"] = matches.mask(table["overhead_ratio"].isna())
    warm = warmup_steps[warmup_steps["phase"] == "step"] if warmup_steps is not None else make_table("warmup_steps")
    ratios = (warm["ms"] / warm["run"].map(table["unprofiled_step_ms"]).astype("float64")).groupby(warm["run"])
    table["first_step_ratio"] = ratios.first()
    table["warmup_enough"] = ratios.agg(count_warmup).astype("float64").reindex(table.index).astype("Int64")
    return table.reset_index(drop=True)


def count_warmup(ratios: pd.Series) -> float:
    """The number of warm-up steps, given ÷ the mean of measured ones, after which all are within 5 % of that; NaN if
    the last is not, or nothing was measured."""
    is_wrong = ~((ratios - 1).abs() <= 0.05).to_numpy()
    return np.nan if is_wrong[-1] else float(is_wrong.nonzero()[0].max(initial=-1) + 1)


def average(rows: pd.DataFrame, by: list[str], steps: pd.Series) -> pd.DataFrame:
    """By run and the columns `by`: total_ns of all steps, and mean and standard deviation of GPU time per step."""
    keys = ["run", *by]
    sums = rows.groupby([*keys, "step"], sort=False, observed=True)[["total_ns", "launches"]].sum().reset_index()
    groups = sums.groupby(keys, sort=False)
    mean = groups["total_ns"].transform("sum") / sums["run"].map(steps).astype("float64")
    table = sums.assign(squares=(sums["total_ns"] - mean) ** 2).groupby(keys, sort=False).agg(
        total_ns=("total_ns", "sum"), launches=("launches", "sum"), squares=("squares", "sum"), ran=("step", "size"),
        fewest=("launches", "min"), most=("launches", "max"),
    ).reset_index()  # fmt: skip
    captured = table["run"].map(steps).astype("float64")
    mean = table["total_ns"] / captured
    squares = table["squares"] + (captured - table["ran"]) * mean**2  # a step in which nothing of it ran is 0
    return pd.DataFrame({
        **table[[*keys, "total_ns"]],
        "gpu_time_ms": mean / 1e6,
        "gpu_time_std_ms": (squares / (captured - 1).where(captured > 1)) ** 0.5 / 1e6,
        "invocations": table["launches"] / captured,
        "same_in_every_step": (table["fewest"] == table["most"]) & (table["ran"] == captured),
    })  # fmt: skip


def share(rows: pd.DataFrame, by: list[str], whole: list[str], steps: pd.Series) -> pd.DataFrame:
    """The averages with `share`, of the time of all rows with the same columns `whole`; the largest first."""
    table = average(rows, by, steps)
    total = table.groupby(whole)["total_ns"].transform("sum")
    table["share"] = table["total_ns"] / total.where(total > 0)
    return table.sort_values("gpu_time_ms", ascending=False, kind="stable")


def rank_kernels(runs: pd.DataFrame, kernels: pd.DataFrame, steps: pd.Series) -> pd.DataFrame:
    """(b, c) The kernels with the most GPU time in three scopes, and the part of the model that needs most of each."""
    forward = kernels[kernels["phase"] == "forward"]
    others = forward[forward["class"].map(family) != "gemm"]
    tables = []
    for scope, rows in {"forward": forward, "forward without matrix multiplies": others, ALL_PHASES: kernels}.items():
        table = average(rows, ["kernel", "class"], steps).assign(scope=scope)
        whole = (kernels if scope == ALL_PHASES else forward).groupby("run")["total_ns"].sum()
        table["share"] = table["total_ns"] / table["run"].map(whole)
        parts = rows.assign(part=rows["range"].map(innermost)).groupby(["run", "kernel", "part"])["total_ns"].sum()
        parts = parts.reset_index().sort_values("total_ns").drop_duplicates(["run", "kernel"], keep="last")
        parts = parts.rename(columns={"total_ns": "part_ns"}).replace({"part": {"": NO_RANGE}})
        table = table.merge(parts, on=["run", "kernel"], how="left")
        tables.append(table.assign(part_share=table["part_ns"] / table["total_ns"]))
    table = pd.concat(tables, ignore_index=True)
    table = table.sort_values(["total_ns", "kernel"], ascending=[False, True], kind="stable")
    table["rank"] = table.groupby(["run", "scope"]).cumcount() + 1
    table = table[table["rank"] <= 5].sort_values(["scope", "rank"], kind="stable")
    table = add_keys(table, runs)
    # rank 1 of all phases is compared with that of the forward pass: of the run of inference that differs in nothing
    # else or, without one, of the same run
    first = table[(table["rank"] == 1) & (table["scope"] == "forward")]
    alike = [key for key in KEYS[1:] if key != "mode"]
    inference = first.loc[first["mode"] == "forward", [*alike, "kernel"]].rename(columns={"kernel": "reference"})
    reference = table[alike].merge(inference.drop_duplicates(alike), on=alike, how="left")["reference"]
    reference = reference.fillna(table["run"].map(first.set_index("run")["kernel"]))
    compared = (table["rank"] == 1) & (table["scope"] == ALL_PHASES) & reference.notna()
    return table.assign(same_as_forward=(table["kernel"] == reference).astype("boolean").where(compared))


def share_parts(kernels: pd.DataFrame, steps: pd.Series) -> pd.DataFrame:
    """(c) Every part's share of the forward pass, with and without its matrix multiplies."""
    forward = kernels[kernels["phase"] == "forward"]
    forward = forward.assign(part=forward["range"].map(innermost).replace("", NO_RANGE))
    others = forward[forward["class"].map(family) != "gemm"]
    table = share(forward, ["part"], ["run"], steps)
    other_ns = table[["run", "part"]].merge(others.groupby(["run", "part"])["total_ns"].sum().reset_index(), how="left")
    other_ns = other_ns["total_ns"].fillna(0).astype("float64").set_axis(table.index)
    return table.assign(other_share=other_ns / table["run"].map(forward.groupby("run")["total_ns"].sum()))


def share_classes(kernels: pd.DataFrame, steps: pd.Series) -> pd.DataFrame:
    """(d) Every class's share of all phases and of each."""
    rows = pd.concat([kernels.assign(phase=ALL_PHASES), kernels], ignore_index=True)
    table = share(rows, ["phase", "class"], ["run", "phase"], steps)
    table["share_of_step"] = table["total_ns"] / table["run"].map(kernels.groupby("run")["total_ns"].sum())
    order = {phase: number for number, phase in enumerate([ALL_PHASES, "forward", "loss", "backward", "optimizer"])}
    return table.sort_values("phase", key=lambda phases: phases.map(order), kind="stable")  # others last


def share_training_parts(kernels: pd.DataFrame, steps: pd.Series) -> pd.DataFrame:
    """(d) GPU time by pass and part of the model, of captures whose backward pass has parts. The part of a kernel there
    is the innermost range that also occurs outside the backward pass, since libraries open ranges of their own."""
    kernels = kernels[kernels["phase"].isin(["forward", "loss", "backward"])]
    distinct = kernels[["run", "phase", "range"]].drop_duplicates()
    known = {run: {"loss"} for run in distinct["run"]}
    for run, phase, path in distinct.itertuples(index=False, name=None):
        if phase != "backward":
            known[run].update(part for name in names_in(path) for part in name.split(" + "))
    passes, parts = [], []
    for run, phase, path in distinct.itertuples(index=False, name=None):
        names, is_backward = names_in(path), phase == "backward"
        passes.append("forward" if not is_backward else RECOMPUTATION if RECOMPUTATION in names else "backward")
        names = [name for name in names if not is_backward or known[run].issuperset(name.split(" + "))]
        parts.append(names[-1] if names else "loss" if phase == "loss" else NO_RANGE)
    distinct = distinct.assign(**{"pass": passes, "part": parts})
    with_parts = distinct[(distinct["pass"] == "backward") & (distinct["part"] != NO_RANGE)]["run"]
    rows = kernels[kernels["run"].isin(with_parts)].merge(distinct, on=["run", "phase", "range"])
    return share(rows, ["pass", "part"], ["run", "pass"], steps) if len(rows) else pd.DataFrame()


def measure_attention(
    runs: pd.DataFrame, kernels: pd.DataFrame, ranges: pd.DataFrame, steps: pd.Series, phase: str, formulas: dict
) -> pd.DataFrame:
    """(e) The parts of attention in a phase, without recomputation: time, FLOPs, and both relative to those of the two
    matrix multiplies. A part includes the ranges inside it."""
    kernels = kernels[kernels["phase"] == phase]
    paths = {path: names for path in kernels["range"].unique() if RECOMPUTATION not in (names := names_in(path))}
    tables = []
    for part in formulas:
        rows = kernels[kernels["range"].isin([path for path, names in paths.items() if part in names])]
        if len(rows):
            tables.append(average(rows.assign(part=part), ["part"], steps))
    if not tables:
        return pd.DataFrame()
    table = pd.concat(tables, ignore_index=True)
    # Instances are those of the forward pass: in the backward pass, a compiled layer may open a range several times.
    opened = ranges[(ranges["phase"] == "forward") & (ranges["step"] >= 0)]
    opened = opened.assign(part=opened["range"].astype("object").fillna("").map(innermost))
    opened = opened.groupby(["run", "part"])["instances"].sum().rename("opened").reset_index()
    opened = table[["run", "part"]].merge(opened, how="left")["opened"].astype("float64")
    table["instances_per_pass"] = opened / table["run"].map(steps)
    table["gpu_time_per_layer_us"] = 1e3 * table["gpu_time_ms"] / table["instances_per_pass"]
    table["kernels_per_layer"] = table["invocations"] / table["instances_per_pass"]
    sizes = runs.set_index("run").loc[table["run"]].reset_index()
    sizes = sizes[["batch_size", "gpus", "num_heads", "context_length", "d_model"]].astype("float64")
    scores = np.ceil(sizes["batch_size"] / sizes["gpus"]) * sizes["num_heads"] * sizes["context_length"] ** 2
    by_width, alone = (table["part"].map(lambda part, at=at: formulas[part][at]) for at in (1, 2))
    table["flops_per_layer"] = scores * (by_width * (sizes["d_model"] // sizes["num_heads"]) + alone)
    table["flops_formula"] = table["part"].map(lambda part: formulas[part][0])
    table["flop_per_s"] = table["flops_per_layer"] / (table["gpu_time_per_layer_us"] * 1e-6)
    matmuls = table[table["part"].isin([SCORES, VALUES])].groupby("run")[["gpu_time_ms", "flops_per_layer"]]
    matmuls = matmuls.sum(min_count=2).reindex(table["run"]).reset_index(drop=True)
    table["runtime_to_matmuls"] = table["gpu_time_ms"] / matmuls["gpu_time_ms"]
    table["flops_to_matmuls"] = table["flops_per_layer"] / matmuls["flops_per_layer"]
    return table


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
