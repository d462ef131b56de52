"""What the figures draw, as tidy tables: one function per figure, shared by paper (matplotlib) and page (plotly)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cs336_model.arithmetic.flops import ModelShape, forward_bytes, forward_flops
from profile_grid.questions.e_attention.table import PARTS
from profile_grid.study.dimensions import FULLEST_FIRST, LEADING, MODES, keys_without
from profile_grid.tables.classes import family
from profile_grid.tables.machines import by_machine
from profile_grid.tables.measured import ON_CPU, ON_GPU, Words
from profile_grid.tables.names import ALL_PHASES, FORWARD, WHOLE_STEP

MODE_NAMES = MODES
DRAWN_PHASES = ("forward", "backward", "optimizer")
CELL = keys_without("mode")
COMPLETE = "complete"
INFERENCE, TRAINING = SIDES = ("inference", "training")


def of_one_machine(tables: dict[str, pd.DataFrame]) -> tuple[dict[str, pd.DataFrame], str, list[str]]:
    """The tables of the machine with the most runs, its title, and a note for every other machine, whose runs are left
    out: times of two machines do not belong in one figure."""
    groups = by_machine(tables["runs"])
    if not groups:
        return tables, "no runs", []
    machine, names = max(groups, key=lambda group: len(group[1]))
    kept = {
        name: table[table["run"].isin(names)].reset_index(drop=True) if "run" in table.columns else table
        for name, table in tables.items()
    }
    others = [(other, runs) for other, runs in groups if other is not machine]
    return kept, machine.title, [f"Not drawn: {len(runs)} run(s) of {other.title}." for other, runs in others]


def words(runs: pd.DataFrame) -> Words:
    """What kernels and their time are called on the device of these runs."""
    return ON_CPU if set(runs["device"].dropna()) == {"cpu"} else ON_GPU


def models_in_order(runs: pd.DataFrame) -> list[str]:
    """Models from the smallest to the largest; those whose size nobody knows stay where the table has them."""
    size = pd.to_numeric(runs.get("parameters", pd.Series(0, index=runs.index)), errors="coerce")
    largest = size.astype("float64").groupby(runs["model"], sort=False).max().fillna(0)
    return list(largest.sort_values(kind="stable").index)


def unhappy_runs(runs: pd.DataFrame, stages: tuple[str, ...] = ("timing", "capture")) -> pd.DataFrame:
    """One row per run that a stage has no figures of: its leading columns, `status` of the first such, `reason`."""
    status = pd.Series(COMPLETE, index=runs.index, dtype="object")
    for stage in stages:
        status = status.where(status != COMPLETE, runs[f"{stage}_status"].astype("object"))
    table = runs[LEADING].assign(status=status, reason=runs["reason"].astype("object"))
    return table[table["status"] != COMPLETE].reset_index(drop=True)


def unhappy_cells(runs: pd.DataFrame, drawn: pd.DataFrame) -> pd.DataFrame:
    """The unhappy runs of the models and contexts that `drawn` has no row of, one per cell: of the fewest phases."""
    present = set(zip(drawn["model"], drawn["context_length"], strict=True))
    unhappy = unhappy_runs(runs)
    absent = [cell not in present for cell in zip(unhappy["model"], unhappy["context_length"], strict=True)]
    return leanest_runs(unhappy[np.array(absent, dtype=bool)])


def fullest_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The run of each model and context with the most phases: a training step where the grid declares one."""
    return _first_by_mode(runs, FULLEST_FIRST)


def leanest_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The run of each model and context with the fewest phases: inference where the grid declares it."""
    return _first_by_mode(runs, FULLEST_FIRST[::-1])


def _first_by_mode(runs: pd.DataFrame, modes: tuple[str, ...]) -> pd.DataFrame:
    rank = runs["mode"].map({mode: position for position, mode in enumerate(modes)})
    return runs.assign(_rank=rank).sort_values("_rank", kind="stable").drop_duplicates(CELL).drop(columns="_rank")


def phase_times(runs: pd.DataFrame, timings: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """(1) One row per model, context and phase of the fullest runs: mean_ms, std_ms (unprofiled), profiled_ms,
    profiled_std_ms. Profiled is first kernel to last where there are kernels, else the wall time of the range."""
    chosen = fullest_runs(runs)["run"]
    unprofiled = timings[timings["run"].isin(chosen) & timings["phase"].isin(DRAWN_PHASES)]
    captured = phases[phases["run"].isin(chosen) & phases["phase"].isin(DRAWN_PHASES)]
    span_ms = captured["gpu_span_ns"].where(captured["kernels"] > 0, captured["wall_ns"]).astype("float64") / 1e6
    profiled = span_ms.groupby([captured[key] for key in [*LEADING, "phase"]]).agg(["mean", "std"]).reset_index()
    profiled = profiled.rename(columns={"mean": "profiled_ms", "std": "profiled_std_ms"})
    keys = [*LEADING, "phase"]
    return unprofiled[[*keys, "mean_ms", "std_ms"]].merge(profiled, on=keys, how="outer", validate="one_to_one")


def class_shares(runs: pd.DataFrame, shares: pd.DataFrame) -> pd.DataFrame:
    """(2) One row per run and family of classes with its `share` of the whole step, of the runs of both sides."""
    chosen = pd.concat([of_side(runs, side)["run"] for side in SIDES])
    drawn = shares[(shares["phase"] == ALL_PHASES) & shares["run"].isin(chosen)]
    keys = [*LEADING, "family"]
    return drawn.assign(family=drawn["class"].map(family)).groupby(keys, sort=False)["share"].sum().reset_index()


def of_side(runs: pd.DataFrame, side: str) -> pd.DataFrame:
    """The declared runs of one side of (2): mode forward, or the fullest training mode of each model and context."""
    return fullest_runs(runs[(runs["mode"] == FORWARD) == (side == INFERENCE)])


def largest_run(runs: pd.DataFrame) -> str | None:
    """The run that shows most: complete, of the fullest mode, the largest model, the longest context."""
    complete = runs[runs["capture_status"] == COMPLETE]
    if complete.empty:
        return None
    order = {model: position for position, model in enumerate(models_in_order(runs))}
    mode = {mode: -position for position, mode in enumerate(FULLEST_FIRST)}
    keys = [complete["mode"].map(mode), complete["model"].map(order), complete["context_length"]]
    return str(complete.loc[pd.concat(keys, axis=1).apply(tuple, axis=1).idxmax(), "run"])


def top_kernels(kernels: pd.DataFrame, run: str, phase: str | None, count: int) -> pd.DataFrame:
    """(3) The kernels with the most time in one run's phase (None: in all of a step), with time_ms and launches per
    step, their `share` of it and class; longest first."""
    rows = kernels[(kernels["run"] == run) & (kernels["step"] >= 0)]
    steps = max(rows["step"].nunique(), 1)
    rows = rows if phase is None else rows[rows["phase"] == phase]
    table = rows.groupby(["kernel", "class"], sort=False)[["total_ns", "launches"]].sum().reset_index()
    table["share"] = table["total_ns"] / max(table["total_ns"].sum(), 1)
    table["time_ms"], table["launches"] = table["total_ns"] / 1e6 / steps, table["launches"] / steps
    return table.sort_values(["total_ns", "kernel"], ascending=[False, True]).head(count).reset_index(drop=True)


def attention_parts(attention: pd.DataFrame) -> pd.DataFrame:
    """(4) One row per model, context and part of attention, of the run with the fewest phases: time and FLOPs."""
    inner = attention[attention["part"].isin(PARTS)]
    return inner[inner["run"].isin(leanest_runs(inner.drop_duplicates("run"))["run"])]


def busy_and_wall(phases: pd.DataFrame) -> pd.DataFrame:
    """(5) One row per run that has kernels: wall_ms and busy_ms of a step, its kernels, mean kernel_us, busy_share."""
    steps = phases[(phases["phase"] == WHOLE_STEP) & (phases["kernels"] > 0) & (phases["wall_ns"] > 0)]
    means = steps.groupby(LEADING, sort=False)[["wall_ns", "gpu_busy_ns", "kernel_ns", "kernels"]].mean().reset_index()
    return means[[*LEADING, "kernels"]].assign(
        wall_ms=means["wall_ns"] / 1e6,
        busy_ms=means["gpu_busy_ns"] / 1e6,
        kernel_us=means["kernel_ns"] / 1e3 / means["kernels"],
        busy_share=means["gpu_busy_ns"] / means["wall_ns"],
    )


def step_times(runs: pd.DataFrame, timings: pd.DataFrame) -> pd.DataFrame:
    """(6) One row per run that was timed: mean_ms and std_ms of a step without a profiler, and its parameters."""
    timed = timings[(timings["phase"] == WHOLE_STEP) & timings["mean_ms"].notna()]
    table = timed[[*LEADING, "mean_ms", "std_ms"]].merge(runs[["run", "parameters"]], on="run", validate="one_to_one")
    return table.assign(parameters=pd.to_numeric(table["parameters"], errors="coerce").astype("float64"))


def roofline(runs: pd.DataFrame, ranges: pd.DataFrame) -> pd.DataFrame:
    """(7) One row per part of the forward pass: flops and bytes from the shapes, gpu_s measured, flop_per_s,
    bytes_per_s, flop_per_byte. Only inference runs whose counted FLOPs are those of the shapes: other people's models
    have other parts. FLOPs are absent where the shapes give none."""
    rows = []
    for run in leanest_runs(runs[runs["capture_status"] == COMPLETE]).to_dict("records"):
        shape = _shape(run)
        own = ranges[(ranges["run"] == run["run"]) & (ranges["phase"] == FORWARD)]
        if shape is None or own.empty:
            continue
        gpu_s = _gpu_seconds_by_part(own)
        flops, moved = forward_flops(shape), forward_bytes(shape, {"bf16": 2}.get(run["precision"], 4))
        lead = {key: run[key] for key in [*LEADING, "device_name"]}
        rows += [
            lead | {"part": part, "flops": flops.get(part), "bytes": moved[part], "gpu_s": gpu_s[part]}
            for part in moved
            if gpu_s.get(part, 0) > 0
        ]
    columns = [*LEADING, "device_name", "part", "flops", "bytes", "gpu_s"]
    table = pd.DataFrame(rows, columns=columns)
    table["flops"] = table["flops"].astype("float64")
    return table.assign(
        flop_per_s=table["flops"] / table["gpu_s"],
        bytes_per_s=table["bytes"] / table["gpu_s"],
        flop_per_byte=table["flops"] / table["bytes"],
    )


def _shape(run: dict) -> ModelShape | None:
    names = ("batch_size", "context_length", "vocab_size", "d_model", "num_layers", "num_heads", "d_ff")
    if any(pd.isna(run.get(name)) for name in (*names, "forward_flops")):
        return None
    shape = ModelShape(**{name: int(run[name]) for name in names})
    return shape if forward_flops(shape)[FORWARD] == int(run["forward_flops"]) else None


def _gpu_seconds_by_part(ranges: pd.DataFrame) -> pd.Series:
    """Seconds per pass of every innermost range name, whatever is nested in it included."""
    steps = ranges["step"].nunique()
    part = ranges["range"].fillna("").str.split(" > ").str[-1]
    return ranges["gpu_time_ns"].groupby(part).sum() / steps / 1e9
