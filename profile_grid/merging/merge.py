"""The runs of a grid brought together: one table of each kind, what ran where, and what each run cost.

A run whose JSON was made from another specification than the plan's is an error, never a figure.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from profile_grid.errors import OutsideError

LEADING = ["run", "model", "context_length", "mode"]
LOSS_TOLERANCE = 1e-3  # relative; atomic additions in the backward pass change the last digits from process to process


class StaleRun(OutsideError):
    """A run's files were made from another specification than config.yaml now holds."""


def read_runs(plan: list[dict], folder: Path) -> list[dict]:
    """Per run of the plan: its entry, and the contents of timing.json, capture.json and status.json.

    `plan` holds run, model, context_length, mode and the two specifications. Raises StaleRun naming the run.
    """
    return [_read_run(entry, folder / entry["run"]) for entry in plan]


def _read_run(entry: dict, folder: Path) -> dict:
    found = {name: json.loads((folder / f"{name}.json").read_text()) for name in ("timing", "capture", "status")}
    for stage in ("timing", "capture"):
        if found[stage]["specification"] != entry[f"{stage}_specification"]:
            raise StaleRun(
                f"{folder}/{stage}.json was measured with other settings than config.yaml now holds;"
                f" run it again: snakemake --cores 1 all --forcerun {folder}/{stage}.json"
            )
    if found["status"]["status"] == "complete" and (
        reason := _machines_differ(found["timing"], found["capture"], folder)
    ):
        found["status"] = {"status": "incomplete", "reason": reason, "warnings": []}
    return {"entry": entry, **found}


def _machines_differ(timing: dict, capture: dict, folder: Path) -> str | None:
    """Why the times and the kernels of a run may not stand in one row: they are of two machines; None where of one."""
    timed, seen = (run["program"]["machine"] for run in (timing, capture))
    for name in ("device_name", "driver", "cuda", "torch"):
        if timed[name] != seen[name]:
            return (
                f"timed with {name} {timed[name]}, captured with {seen[name]}; measure both on one machine:"
                f" snakemake --cores 1 all --forcerun {folder}/timing.json {folder}/capture.json"
            )
    return None


def merged_tables(runs: list[dict], folder: Path) -> dict[str, pd.DataFrame]:
    """Every merged table by its name; `folder` holds the tables of each run."""
    return {
        "runs": runs_table(runs),
        "timings": timings_table(runs),
        "steps": steps_table(runs),
        "cost": cost_table(runs),
        **{name: joined_tables(runs, folder, name) for name in ("kernels", "phases", "ranges")},
    }


def checkouts(runs: list[dict]) -> list[dict]:
    """The git commit at which each process of each run was measured, and whether the tree was clean."""
    nowhere = {"git_commit": None, "git_clean": None}
    return [run[stage].get("git", nowhere) for run in runs for stage in ("timing", "capture")]


def leading(run: dict) -> dict:
    """The four columns with which every table begins."""
    return {name: run["entry"][name] for name in LEADING}


def runs_table(runs: list[dict]) -> pd.DataFrame:
    """One row per run: its shape, how its two processes ended, and the machine that ran it."""
    return pd.DataFrame([_run_row(run) for run in runs]).convert_dtypes()


def _run_row(run: dict) -> dict:
    timing, capture, program = run["timing"], run["capture"], run["timing"]["program"]
    spec, machine = program["spec"], program["machine"]
    shape, memory = spec["constructor_args"], program["memory"]
    oom = program["out_of_memory"] or (capture["program"] or {}).get("out_of_memory") or {}
    return leading(run) | {
        "precision": spec["precision"],
        "batch_size": spec["batch_size"],
        **{name: shape[name] for name in ("d_model", "d_ff", "num_layers", "num_heads", "vocab_size")},
        "parameters": program["parameters"],
        "timing_status": timing["status"],
        "capture_status": run["status"]["status"],
        "reason": run["status"]["reason"] or oom.get("message"),
        "oom_during": oom.get("during"),
        "oom_requested_bytes": oom.get("requested_bytes"),
        "oom_free_bytes": oom.get("free_bytes"),
        "oom_total_bytes": oom.get("total_bytes"),
        "backend": capture["backend"],
        "device": machine["device"],
        "device_name": machine["device_name"],
        "gpu_uuid_sha256": machine["gpu_uuid_sha256"],
        "driver": machine["driver"],
        "cuda": machine["cuda"],
        "torch": machine["torch"],
        "python": machine["python"],
        "nsys": capture["nsys"],
        "steps_timed": len(program["step_seconds"]),
        "steps_captured": spec_steps(capture) if run["status"]["status"] == "complete" else 0,
        "peak_allocated_bytes": memory["peak_allocated_bytes"],
        "peak_reserved_bytes": memory["peak_reserved_bytes"],
        "device_total_bytes": memory["device_total_bytes"],
        "forward_flops": (program["flops"] or {}).get("forward"),
        "loss": program["losses"][-1] if program["losses"] else None,
        "sm_clock_mhz": machine["sm_clock_mhz"],
        "note": "; ".join(_notes(run)) or None,
        "timing_started_utc": timing["started_utc"],
        "capture_started_utc": capture["started_utc"],
    }  # fmt: skip


def spec_steps(capture: dict) -> int:
    """The steps that the capture was configured to hold."""
    return capture["specification"]["program"]["measured_steps"]


def _notes(run: dict) -> list[str]:
    """Everything that makes this run's figures hard to compare."""
    machine = run["timing"]["program"]["machine"]
    return [*_notes_before(run), *_machine_notes(machine), *_loss_notes(run), *run["status"]["warnings"]]


def _notes_before(run: dict) -> list[str]:
    """What was odd about the GPU before each of the two processes."""
    return [f"{stage}: {note}" for stage in ("timing", "capture") for note in run[stage].get("notes", ())]


def _machine_notes(machine: dict) -> list[str]:
    notes = []
    if machine.get("other_processes"):
        notes.append(f"{machine['other_processes']} other process(es) on the GPU while it was timed")
    if machine.get("throttle_reasons"):
        notes.append(f"clocks held back: {', '.join(machine['throttle_reasons'])}")
    return notes


def _loss_notes(run: dict) -> list[str]:
    """A note where timing and capture did not compute the same losses, so did not measure the same work."""
    timed = run["timing"]["program"]["losses"]
    seen = (run["capture"]["program"] or {}).get("losses") or []
    common = min(len(timed), len(seen))
    if common and not np.allclose(timed[:common], seen[:common], rtol=LOSS_TOLERANCE):
        return [f"losses differ between timing {timed[:common]} and capture {seen[:common]}"]
    return []


def timings_table(runs: list[dict]) -> pd.DataFrame:
    """One row per run and phase: count, mean, standard deviation (n-1), min and max in ms; NaN where not measured."""
    rows = []
    for run in runs:
        program, status = run["timing"]["program"], run["timing"]["status"]
        times = _times(program) if status == "complete" else {"step": []}
        rows += [
            leading(run) | {"phase": phase, **_statistics(seconds), "status": status}
            for phase, seconds in times.items()
        ]
    return pd.DataFrame(rows)


def _times(program: dict) -> dict[str, list[float]]:
    """Seconds of the steps, then of each phase that the run's mode has."""
    return {"step": program["step_seconds"]} | {
        phase: times for phase, times in program["phase_seconds"].items() if times
    }


def _statistics(seconds: list[float]) -> dict:
    ms = np.asarray(seconds, dtype="float64") * 1e3
    if not len(ms):
        return {"n": 0} | dict.fromkeys(("mean_ms", "std_ms", "min_ms", "max_ms"), np.nan)
    std = ms.std(ddof=1) if len(ms) > 1 else np.nan
    return {"n": len(ms), "mean_ms": ms.mean(), "std_ms": std, "min_ms": ms.min(), "max_ms": ms.max()}


def steps_table(runs: list[dict]) -> pd.DataFrame:
    """One row per run, phase and timed step: every single time, in ms."""
    rows = []
    for run in runs:
        program = run["timing"]["program"]
        for phase, seconds in _times(program).items():
            rows += [leading(run) | {"phase": phase, "step": step, "ms": s * 1e3} for step, s in enumerate(seconds)]
    return pd.DataFrame(rows, columns=[*LEADING, "phase", "step", "ms"])


def cost_table(runs: list[dict]) -> pd.DataFrame:
    """One row per run and process: where its seconds went; `overhead_s` is all that is no warm-up or measured step."""
    return pd.DataFrame([_cost_row(run, stage) for run in runs for stage in ("timing", "capture")])


def cost_in_words(cost: pd.DataFrame) -> str:
    """One line: what all measurements took, and how much of it was neither a warm-up nor a measured step."""
    total, overhead = cost["total_s"].sum(), cost["overhead_s"].sum()
    means = cost.groupby("stage")["overhead_s"].mean()
    per_stage = ", ".join(f"{means[stage]:.1f} s per {stage}" for stage in ("timing", "capture"))
    return (
        f"{len(cost)} measurements took {total:.0f} s, {overhead:.0f} s of them outside warm-up and measured steps"
        f" ({per_stage}); every run is in cost.csv"
    )


def _cost_row(run: dict, stage: str) -> dict:
    seconds = run[stage]["seconds"]
    inside = (run[stage]["program"] or {}).get("cost_seconds") or {}
    named = {
        f"{name}_s": inside.get(name, np.nan)
        for name in ("import", "context", "initialise", "warmup", "measured", "profiler")
    }
    steps = np.nansum([named["warmup_s"], named["measured_s"]])
    export = seconds.get("export", 0.0)
    accounted = np.nansum(list(named.values())) + export
    return leading(run) | {
        "stage": stage,
        **named,
        "export_s": export,
        "other_s": seconds["all"] - accounted,
        "total_s": seconds["all"],
        "overhead_s": seconds["all"] - steps,
    }


def joined_tables(runs: list[dict], folder: Path, name: str) -> pd.DataFrame:
    """The table `name` of every run below one another, each row led by its run."""
    tables = []
    for run in runs:
        table = pd.read_parquet(folder / run["entry"]["run"] / f"{name}.parquet")
        if run["status"]["status"] != "complete":
            table = table.head(0)
        for position, (column, value) in enumerate(leading(run).items()):
            table.insert(position, column, value)
        tables.append(table)
    filled = [table for table in tables if len(table)] or tables[:1]
    return pd.concat(filled, ignore_index=True)
