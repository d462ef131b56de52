"""From the merged tables to a table per question (a) to (e), with means over the captured steps.

GPU time is the sum of the durations of kernels and memory operations (without a GPU: of outermost operators), even if
they overlap; it is that of one pass or step, in which a kernel that does not run counts as zero.
"""

import numpy as np
import pandas as pd

from kernel_tables.attribution import innermost, names_in
from kernel_tables.classes import family
from workflow.tables import KEYS, make_table, read_tables, sort_runs, write_tables

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
    """Writes the tables that the outputs name, from runs, timings, phases, kernels, ranges, steps and warmup_steps."""
    tables = read_tables(inputs)
    runs, phases, ranges = tables["runs"], tables["phases"], tables["ranges"]
    kernels = tables["kernels"].query("step >= 0").drop(columns=KEYS[1:])
    kernels["range"] = kernels["range"].astype("object").fillna("")
    kernels["part"] = kernels["range"].map(innermost).replace("", NO_RANGE)
    steps = phases[phases["phase"] == "step"].groupby("run")["step"].nunique()
    forward, backward = (kernels[kernels["phase"] == phase] for phase in ("forward", "backward"))
    timed = {name: tables.get(name, make_table(name)) for name in ("warmup_steps", "steps")}
    made = {"forward_time": summarize_forward(runs, tables["timings"], phases, **timed)}
    if len(kernels):
        made |= {
            "top_kernels": rank_kernels(kernels, steps),
            "forward_parts": share_parts(forward, steps),
            "class_shares": share_classes(kernels, steps),
            "training_parts": share_training_parts(kernels, steps),
            "attention": measure_attention(runs, forward, ranges, steps, FORWARD_FLOPS),
            "attention_backward": measure_attention(runs, backward, ranges, steps, BACKWARD_FLOPS),
        }
    made = {name: sort_runs(rows, runs) for name, rows in made.items() if len(rows)}
    write_tables({name: rows.merge(runs[KEYS], on="run", validate="m:1") for name, rows in made.items()}, outputs)


def summarize_forward(
    runs: pd.DataFrame, timings: pd.DataFrame, phases: pd.DataFrame, warmup_steps: pd.DataFrame, steps: pd.DataFrame
) -> pd.DataFrame:
    """(a) Every run's forward pass on the host and on the GPU, and its step with and without the profiler."""
    names = ["wall_ns", "gpu_span_ns", "gpu_busy_ns", "kernel_ns", "kernels"]
    grouped = phases.astype(dict.fromkeys(names, "float64")).groupby(["phase", "run"])[names]
    mean = grouped.mean().join(grouped.std().add_suffix("_std")).reset_index("phase")
    forward, step = (mean[mean["phase"] == phase].reindex(runs["run"]) for phase in ("forward", "step"))
    python = timings[timings["phase"] == "step"].set_index("run").reindex(runs["run"])
    between_processes = python["mean_ms"] * python["process_spread"].fillna(0)
    table = pd.DataFrame(index=pd.Index(runs["run"]))
    ranges = {"forward_wall": forward, "forward_gpu_span": forward, "forward_gpu_busy": forward, "step_wall": step}
    for name, phase in ranges.items():
        column = f"{name.partition('_')[2]}_ns"
        table[f"{name}_ms"], table[f"{name}_std_ms"] = phase[column] / 1e6, phase[f"{column}_std"] / 1e6
    table["unprofiled_step_ms"] = python["mean_ms"]
    table["unprofiled_step_std_ms"] = (python["std_ms"] ** 2 + between_processes**2) ** 0.5
    table["process_spread"] = python["process_spread"]
    table["mean_kernel_us"] = forward["kernel_ns"] / forward["kernels"] / 1e3
    table["launch_us"] = forward["wall_ns"] / forward["kernels"] / 1e3
    table["idle_share"] = 1 - step["gpu_busy_ns"] / step["wall_ns"]
    idle_share = (1 - step["gpu_busy_ns"] / 1e6 / table["unprofiled_step_ms"]).clip(lower=0)
    table["unprofiled_idle_share"] = idle_share.where((runs["device"] == "cuda").to_numpy())
    table["us_per_kernel"] = 1e3 * table["unprofiled_step_ms"] / step["kernels"]
    is_launching = table["launch_us"].between(table["mean_kernel_us"], 150, inclusive="neither")  # or it waits: memory
    table["launch_bound"] = (table["unprofiled_idle_share"] >= 0.15) & is_launching
    table["overhead_ratio"] = table["step_wall_ms"] / table["unprofiled_step_ms"]
    stds = [table[f"{name}_std_ms"] / table[f"{name}_ms"] for name in ("step_wall", "unprofiled_step")]
    table["overhead_ratio_std"] = table["overhead_ratio"] * (stds[0] ** 2 + stds[1] ** 2) ** 0.5
    matches = ((table["overhead_ratio"] - 1).abs() <= 0.05).astype("boolean")
    table["matches_python"] = matches.where(table["overhead_ratio"].notna())
    warm = warmup_steps[warmup_steps["phase"] == "step"]
    warmed = steps.query("phase == 'step' and process == 1").groupby("run")["ms"].mean()  # by the same process
    ratios = (warm["ms"] / warm["run"].map(warmed).astype("float64")).groupby(warm["run"])
    table["first_step_ratio"] = ratios.first()
    table["warmup_enough"] = ratios.agg(count_warmup).astype("float64").reindex(table.index).astype("Int64")
    return table.reset_index()


def count_warmup(ratios: pd.Series) -> float:
    """The number of warm-up steps, given ÷ the mean of measured ones, after which all are within 5 % of that; NaN if
    the last is not, or nothing was measured."""
    is_wrong = ~((ratios - 1).abs() <= 0.05).to_numpy()
    return np.nan if is_wrong[-1] else float(is_wrong.nonzero()[0].max(initial=-1) + 1)


def average(rows: pd.DataFrame, by: list[str], steps: pd.Series) -> pd.DataFrame:
    """By run and the columns `by`: total_ns of all steps, mean and standard deviation of GPU time per step, and
    invocations. A step in which nothing of it ran counts as 0."""
    sums = rows.groupby(["run", *by, "step"], observed=True)[["total_ns", "launches"]].sum().unstack("step")
    captured = steps.reindex(sums.index.get_level_values("run")).to_numpy()[:, np.newaxis]
    sums = sums.fillna(0).where(sums.columns.get_level_values("step").to_numpy() < captured)
    times, launches = sums["total_ns"], sums["launches"]
    return pd.DataFrame({
        "total_ns": times.sum(axis=1), "gpu_time_ms": times.mean(axis=1) / 1e6,
        "gpu_time_std_ms": times.std(axis=1) / 1e6, "invocations": launches.mean(axis=1),
        "same_in_every_step": launches.min(axis=1) == launches.max(axis=1),
    }).reset_index()  # fmt: skip


def share(rows: pd.DataFrame, by: list[str], whole: list[str], steps: pd.Series) -> pd.DataFrame:
    """The averages with `share`, of the time of all rows with the same columns `whole`; the largest first."""
    table = average(rows, by, steps)
    total = table.groupby(whole)["total_ns"].transform("sum")
    table["share"] = table["total_ns"] / total.where(total > 0)
    return table.sort_values("gpu_time_ms", ascending=False, kind="stable")


def rank_kernels(kernels: pd.DataFrame, steps: pd.Series) -> pd.DataFrame:
    """(b, c) The kernels with the most GPU time in three scopes, and the part of the model that needs most of each."""
    forward = kernels[kernels["phase"] == "forward"]
    others = forward[forward["class"].map(family) != "gemm"]
    tables = []
    for scope, rows in {"forward": forward, "forward without matrix multiplies": others, ALL_PHASES: kernels}.items():
        table = average(rows, ["kernel", "class"], steps).assign(scope=scope)
        whole = (kernels if scope == ALL_PHASES else forward).groupby("run")["total_ns"].sum()
        table["share"] = table["total_ns"] / table["run"].map(whole)
        parts = rows.groupby(["run", "kernel", "part"])["total_ns"].sum()
        parts = parts.rename("part_ns").sort_values().reset_index().drop_duplicates(["run", "kernel"], keep="last")
        tables.append(table.merge(parts, on=["run", "kernel"]))
    table = pd.concat(tables).sort_values(["total_ns", "kernel"], ascending=[False, True], kind="stable")
    table["part_share"] = table["part_ns"] / table["total_ns"]
    table["rank"] = table.groupby(["run", "scope"]).cumcount() + 1
    first = table[(table["rank"] == 1) & (table["scope"] == "forward")].set_index("run")["kernel"]
    leads = (table["kernel"] == table["run"].map(first)).astype("boolean")
    table["same_as_forward"] = leads.where((table["rank"] == 1) & (table["scope"] == ALL_PHASES))
    return table[table["rank"] <= 5].sort_values(["scope", "rank"], kind="stable")


def share_parts(forward: pd.DataFrame, steps: pd.Series) -> pd.DataFrame:
    """(c) Every part's share of the forward pass, with and without its matrix multiplies."""
    forward = forward.assign(other_ns=forward["total_ns"].where(forward["class"].map(family) != "gemm", 0))
    other_share = forward.groupby(["run", "part"])["other_ns"].sum() / forward.groupby("run")["total_ns"].sum()
    table = share(forward, ["part"], ["run"], steps)
    return table.merge(other_share.rename("other_share").reset_index(), on=["run", "part"])


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
    kernels = kernels[kernels["phase"].isin(["forward", "loss", "backward"])].drop(columns="part")
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
    return share(rows, ["pass", "part"], ["run", "pass"], steps) if len(rows) else rows


def measure_attention(
    runs: pd.DataFrame, kernels: pd.DataFrame, ranges: pd.DataFrame, steps: pd.Series, formulas: dict
) -> pd.DataFrame:
    """(e) The parts of attention in the kernels of a phase, without recomputation: time, FLOPs, and both relative to
    those of the two matrix multiplies. A part includes the ranges inside it."""
    paths = {path: names for path in kernels["range"].unique() if RECOMPUTATION not in (names := names_in(path))}
    inside = {part: [path for path, names in paths.items() if part in names] for part in formulas}
    rows = [kernels[kernels["range"].isin(some)].assign(part=part) for part, some in inside.items()]
    rows = pd.concat(rows)
    if rows.empty:
        return rows
    table = average(rows, ["part"], steps).sort_values("part", key=lambda parts: parts.map(list(formulas).index))
    # Instances are those of the forward pass: in the backward pass, a compiled layer may open a range several times.
    opened = ranges[(ranges["phase"] == "forward") & (ranges["step"] >= 0)]
    opened = opened.assign(part=opened["range"].astype("object").fillna("").map(innermost))
    opened = opened.groupby(["run", "part"])["instances"].sum().div(steps, level="run").rename("instances_per_pass")
    table = table.merge(opened.reset_index(), on=["run", "part"], how="left")
    table["gpu_time_per_layer_us"] = 1e3 * table["gpu_time_ms"] / table["instances_per_pass"]
    table["kernels_per_layer"] = table["invocations"] / table["instances_per_pass"]
    sizes = runs.set_index("run")[["batch_size", "gpus", "num_heads", "context_length", "d_model"]]
    sizes = sizes.loc[table["run"]].reset_index(drop=True).astype("float64")
    scores = np.ceil(sizes["batch_size"] / sizes["gpus"]) * sizes["num_heads"] * sizes["context_length"] ** 2
    table[["flops_formula", "by_width", "alone"]] = table["part"].map(formulas).to_list()
    head = sizes["d_model"] // sizes["num_heads"]
    table["flops_per_layer"] = scores * (table["by_width"] * head + table["alone"])
    table["flop_per_s"] = table["flops_per_layer"] / (table["gpu_time_per_layer_us"] * 1e-6)
    matmuls = table[table["part"].isin([SCORES, VALUES])].groupby("run")[["gpu_time_ms", "flops_per_layer"]]
    matmuls = matmuls.sum(min_count=2).reindex(table["run"]).reset_index(drop=True)
    table["runtime_to_matmuls"] = table["gpu_time_ms"] / matmuls["gpu_time_ms"]
    table["flops_to_matmuls"] = table["flops_per_layer"] / matmuls["flops_per_layer"]
    return table


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
