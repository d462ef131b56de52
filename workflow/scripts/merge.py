"""All results and tables of runs -> results/tables: a table of each kind for all runs, and what their columns mean.

Refuses results that were made from something else than config.yaml and the code say now: that happens if results were
copied here without Snakemake's metadata, and something changed since. A run without results (out of memory, ...) is a
row of `runs` with its reason. Nothing is averaged over a dimension that varies.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from cs336_model.results import STAGES, Attention, BadResult, Capture, Energy, Result, Timing, read_result
from kernel_tables.errors import NotConserved
from kernel_tables.output import write_text
from workflow.freshness import command_for, explain_difference
from workflow.tables import KEYS, declared_tables, dictionary, make_table, write_tables

LOSS_TOLERANCE = 1e-3  # relative; atomic additions change the last digits from process to process
SIZES = ("d_model", "d_ff", "num_layers", "num_heads")
Stages = dict[str, list[Result]]  # by stage, the result of each process


def main(results: Sequence[str], tables: Sequence[str], plan: str, outputs: Sequence[str]) -> None:
    """Writes the merged tables and README.md among `outputs`; other tables in their folder, which are of an earlier
    grid or are made from these, go. `results`: the JSON of all results; `tables`: Parquet of runs, and status.json;
    `plan`: the wanted keys."""
    stages_by_run = read_results(results, json.loads(Path(plan).read_text(encoding="utf-8")))
    statuses = [Path(path) for path in tables if path.endswith("status.json")]
    warnings = {path.parent.name: json.loads(path.read_text(encoding="utf-8"))["warnings"] for path in statuses}
    merged = merge_run_tables([path for path in tables if path.endswith(".parquet")], stages_by_run)
    if statuses:
        check_conservation(merged["kernels"], merged["phases"])
    rows = [describe_run(stages, warnings.get(run, [])) for run, stages in stages_by_run.items()]
    merged |= {"runs": make_table("runs", rows)} | merge_timings(stages_by_run) | merge_lists(stages_by_run)
    folder = Path(outputs[0]).parent
    for path in (folder / f"{name}.{suffix}" for name in declared_tables() for suffix in ("csv", "parquet")):
        path.unlink(missing_ok=True)
    write_tables(merged, outputs)
    write_text(dictionary(), folder / "README.md")


def read_results(paths: Sequence[str], wanted: dict[str, dict]) -> dict[str, Stages]:
    """The results by run and stage, in their order, which is that of their processes. Raises BadResult if one cannot be
    read, or was made from something else than `wanted`, its key by path."""
    if missing := sorted({*paths} - {*wanted}):
        why = "is no longer planned, since another grid was planned meanwhile: run snakemake again"
        raise BadResult(f"{missing[0]} {why}")
    results = {path: read_result(Path(path)) for path in paths}
    stale = {path: explain_difference(result.key, wanted[path]) for path, result in results.items()}
    if stale := {path: difference for path, difference in stale.items() if difference}:
        shown = "".join(f"\n  {path}: {difference}" for path, difference in list(stale.items())[:5])
        raise BadResult(
            f"{len(stale)} of {len(paths)} results were made from something else than config.yaml and the code say now:"
            f"{shown}{' ...' if len(stale) > 5 else ''}\nMeasure them again, with your --config, --configfile and"
            f" --directory:\n  {command_for(stale)}"
        )
    stages_by_run: dict[str, Stages] = {}
    for path, result in results.items():
        stages_by_run.setdefault(result.key["spec"]["run"], {}).setdefault(Path(path).stem, []).append(result)
    return stages_by_run


def list_keys(stages: Stages) -> dict[str, object]:
    """The values of KEYS of a run. What attention alone does not have is empty."""
    spec = next(iter(stages.values()))[0].key["spec"]
    if spec["stage"] == "attention":
        spec = spec | {"model": "attention"} | dict.fromkeys(["context_length", "mode", "checkpoint", "optimizer"])
        spec["parallel"] = None
    return {key: spec[key] for key in KEYS}


def describe_run(stages: Stages, warnings: Sequence[str]) -> dict[str, object]:
    """The row of a run in `runs`: its keys, sizes, machine, versions, and the status of each stage."""
    by_stage = {stage: stages[stage][0] for stage in STAGES if stage in stages}
    results = list(by_stage.values())
    timing = results[0] if isinstance(results[0], Timing) else Timing(status="unsupported")
    capture = by_stage.get("capture") or Capture(status="unsupported")
    spec, machine = results[0].key["spec"], next((result.machine for result in results if result.machine), None)
    memory = next((result.out_of_memory for result in results if result.out_of_memory), None)
    sizes = {name: value for name, value in spec["sizes"].items() if isinstance(value, int)}
    return list_keys(stages) | {
        "head_dim": spec.get("head_dim"), **{name: sizes.get(name) for name in SIZES},
        "vocab_size": spec.get("vocab_size"), "parameters": timing.parameters, "forward_flops": timing.forward_flops,
        **{f"{stage}_status": by_stage[stage].status if stage in by_stage else "not_asked" for stage in STAGES},
        "reason": next((result.reason for result in results if result.reason), None),
        **{f"oom_{name}": getattr(memory, name, None)
           for name in ("during", "requested_bytes", "total_bytes")},
        "backend": capture.profiler, "nsys": capture.nsys, **(msgspec.structs.asdict(machine) if machine else {}),
        "steps_timed": len(timing.step_seconds),
        "steps_captured": capture.key["spec"]["measured_steps"] if capture.status == "complete" else 0,
        "peak_allocated_bytes": timing.peak_allocated_bytes, "loss": timing.losses[-1] if timing.losses else None,
        "graph_breaks": timing.graph_breaks,
        "compile_s": None if spec["compile"] == "off" else timing.compile_seconds,
        "started_utc": results[0].started_utc, "note": "; ".join([*list_notes(by_stage), *warnings]) or None,
    }  # fmt: skip


def list_notes(by_stage: dict[str, Result]) -> list[str]:
    """What makes the numbers of a run hard to compare: graph breaks, and losses that differ, so that stages measured
    other work. The stage counters has a smaller model."""
    notes = []
    if breaks := max(getattr(result, "graph_breaks", None) or 0 for result in by_stage.values()):
        notes.append(f"the compiled model is broken into parts by {breaks} graph break{'s' * (breaks > 1)}")
    losses = {name: getattr(result, "losses", None) for name, result in by_stage.items() if name != "counters"}
    (first, expected), *others = [(name, found) for name, found in losses.items() if found] or [("", [])]
    for name, found in others:
        ratios = np.array([now / then for now, then in zip(found, expected, strict=False)])
        if (difference := np.abs(ratios - 1).max()) > LOSS_TOLERANCE:
            notes.append(f"the losses of {first} and {name} differ by up to {difference:.1%}")
    return notes


def merge_timings(stages_by_run: dict[str, Stages]) -> dict[str, pd.DataFrame]:
    """`timings` and `steps` of all processes; `warmup_steps` of the first."""
    rows = defaultdict(list)
    for stages in (stages for stages in stages_by_run.values() if "timing" in stages):
        keys, first = list_keys(stages), stages["timing"][0]
        processes = [list_times(result) for result in stages["timing"] if first.status == result.status == "complete"]
        for phase in processes[0] if processes else ["step"]:
            times = [process[phase] for process in processes if phase in process]
            rows["timings"].append(keys | {"phase": phase, **summarize_times(times), "status": first.status})
        for number, result in enumerate(stages["timing"], 1):
            rows["steps"] += list_steps(keys | {"process": number}, list_times(result))
        rows["warmup_steps"] += list_steps(keys, {"step": first.warmup_seconds, **first.warmup_phase_seconds})
    return {name: make_table(name, rows[name]) for name in ("timings", "steps", "warmup_steps")}


def list_steps(leading: dict[str, object], seconds: dict[str, list[float]]) -> list[dict[str, object]]:
    """A row for each phase and step, from its seconds by phase, with the time in ms."""
    return [
        leading | {"phase": phase, "step": step, "ms": 1e3 * time}
        for phase, times in seconds.items()
        for step, time in enumerate(times)
    ]


def list_times(timing: Timing) -> dict[str, list[float]]:
    """The seconds of the steps, and of each phase that has times; of steps without communication, too."""
    more = timing.phase_seconds | {"step_without_communication": timing.without_communication_seconds}
    return {"step": timing.step_seconds} | {phase: times for phase, times in more.items() if times}


def summarize_times(processes: Sequence[Sequence[float]]) -> dict[str, float]:
    """The statistics in ms of the times of all processes. `n` counts all steps. The mean is the geometric mean of the
    processes' means, the standard deviation the root of the mean variance within a process, and the spread the standard
    deviation of the logarithms of the processes' means, NaN for one process."""
    times = [1e3 * np.asarray(seconds, dtype="float64") for seconds in processes if len(seconds)]
    if not times:
        return {"n": 0, "processes": 0}
    variances = [process.var(ddof=1) if len(process) > 1 else np.nan for process in times]
    means = np.array([process.mean() for process in times])
    return {
        "n": sum(map(len, times)), "mean_ms": np.exp(np.log(means).mean()) if len(times) > 1 else means[0],
        "std_ms": float(np.mean(variances)) ** 0.5,
        "min_ms": min(process.min() for process in times), "max_ms": max(process.max() for process in times),
        "processes": len(times), "process_spread": np.log(means).std(ddof=1) if len(times) > 1 else np.nan,
    }  # fmt: skip


def merge_lists(stages_by_run: dict[str, Stages]) -> dict[str, pd.DataFrame]:
    """The tables whose rows stand in results: windows of energy, and cells of attention alone."""
    rows = defaultdict(list)
    for stages in stages_by_run.values():
        keys = list_keys(stages)
        if "energy" in stages:
            rows["energy_windows"] += [keys | row for row in list_windows(stages["energy"][0])]
        if "attention" in stages:
            rows["attention_cells"] += [keys | row for row in list_cells(stages["attention"][0])]
    return {name: make_table(name, found) for name, found in rows.items()}


def list_windows(result: Energy) -> list[dict]:
    """The rows of a run in `energy_windows`."""
    return [
        msgspec.structs.asdict(window) | {"window": number, "joules": 1e-6 * window.microjoules}
        for number, window in enumerate(result.windows)
    ]


def list_cells(result: Attention) -> list[dict]:
    """The rows of a run in `attention_cells`, with the context length of each."""
    rows = []
    for cell in result.cells:
        row = msgspec.structs.asdict(cell) | {"passes": len(cell.forward_seconds), "compile_s": cell.compile_seconds}
        row["head_dim"] = result.key.get("spec", {}).get("head_dim")
        for name, values in {"forward": cell.forward_seconds, "backward": cell.backward_seconds}.items():
            row[f"{name}_ms"] = 1e3 * fmean(values) if values else None
            row[f"{name}_std_ms"] = 1e3 * stdev(values) if len(values) > 1 else None
        rows.append(row)
    return rows


def merge_run_tables(paths: Sequence[str], stages_by_run: dict[str, Stages]) -> dict[str, pd.DataFrame]:
    """The tables of runs by name, each row with the keys of its run before it."""
    parts: dict[str, list[pa.Table]] = defaultdict(list)
    keys = {run: list_keys(stages) for run, stages in stages_by_run.items()}
    for path in map(Path, paths):
        table = pq.ParquetFile(path).read(use_threads=False)
        columns = {key: pa.array([value] * len(table)) for key, value in keys[path.parent.name].items()}
        parts[path.stem].append(pa.table(columns | dict(zip(table.column_names, table.columns, strict=True))))
    return {name: pa.concat_tables(found, promote_options="permissive").to_pandas() for name, found in parts.items()}


def check_conservation(kernels: pd.DataFrame, phases: pd.DataFrame) -> None:
    """Raises NotConserved unless kernels add up to their phase, to the nanosecond: else captures of a run differ."""
    keys, is_memory = ["run", "step", "phase"], kernels["class"].isin(["memcpy", "memset"])
    whole = phases[phases["phase"] != "step"].set_index(keys)
    for column, rows in (("kernel_ns", kernels[~is_memory]), ("memop_ns", kernels[is_memory])):
        sums = rows[rows["step"] >= 0].groupby(keys)["total_ns"].sum()
        both = pd.concat([sums.rename("kernels"), whole[column].rename("phases")], axis=1).fillna(0).astype("int64")
        wrong = both[both["kernels"] != both["phases"]]
        if len(wrong):
            (run, step, phase), (found, expected) = wrong.index[0], wrong.iloc[0]
            raise NotConserved(
                f"{run}, step {step}, {phase}: its kernels take {found} ns, the phase {expected} ns; the tables are of"
                f" different captures: snakemake --forcerun results/runs/{run}/kernels.parquet"
            )


if "snakemake" in globals():
    try:
        main(snakemake.input.results, snakemake.input.tables, snakemake.input.plan, snakemake.output)
    except (BadResult, NotConserved) as error:
        sys.exit(str(error))
