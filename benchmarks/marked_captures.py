"""Measures how marking the backward pass changes captures: `python -m benchmarks.marked_captures FOLDER [RUN ...]`.

Every run is captured with its backward pass marked and unmarked, in turn, --rounds times, on the same GPU. For phases
over 0.1 ms, the number of kernels and their GPU time should not change; the time of the host in a step and in its
backward pass shows the cost of marking. The difference between two captures of the same kind is also printed. The exit
status is 1 if a number of kernels differs, or GPU time by more than 0.5 %.

Uses the GPU without a lease; about nine seconds per capture. Rows are in FOLDER/marked.json.
"""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import pandas as pd

from benchmarks.harness import PYTHON, print_rows, project_config, run
from cs336_model import ranges
from kernel_recorder.gpu import NSYS, profiler_of_this_machine
from kernel_recorder.nsys_profile import profile_command
from kernel_tables.reading.nsys import export_report
from kernel_tables.trace import Trace
from profile_grid.study.runs import checked_config, grid_runs, specification
from profile_grid.study.stages import CAPTURE

MARKED, UNMARKED = "marked", "unmarked"
PROGRAMS = {MARKED: "cs336_model.program.benchmark", UNMARKED: "benchmarks.programs.without_backward_parts"}
MIN_MS, MAX_CHANGE = 0.1, 0.005
MODELS, MODES = ("small", "large", "2.7B"), ("forward_backward", "train_step")
DEFAULT = [f"{model}_ctx512_{mode}" for model, mode in product(MODELS, MODES)]


def main(folder: Path, runs: list[str] = DEFAULT, *, grid: str = "cs336-2025", rounds: int = 2) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    config = checked_config(project_config(grid=grid))
    known, rows = grid_runs(config), []
    for number, name in product(range(rounds), runs):
        program = json.loads(specification(config, known[name], CAPTURE))["program"]
        for kind in (MARKED, UNMARKED) if number % 2 == 0 else (UNMARKED, MARKED):
            rows += [{"run": name, "kind": kind, "round": number} | row for row in captured(program, kind, folder)]
            (folder / "marked.json").write_text(json.dumps(rows, indent=1))
            print(f"round {number + 1} of {rounds}: {name} {kind}", file=sys.stderr, flush=True)
    table = compared(pd.DataFrame(rows))
    print_rows(table.columns, table.itertuples(index=False))
    changed = table["gpu_ratio"].sub(1).abs()
    print(
        f"{len(table)} phases: GPU time changes by {changed.max():.2%} at most, by {changed.median():.2%} in the"
        f" median; two captures of the same kind differ by {table['gpu_scatter'].max():.2%} at most"
    )
    return int(((table["kernels"] != table["kernels_unmarked"]) | (changed > MAX_CHANGE)).any())


def captured(program: dict, kind: str, folder: Path) -> list[dict]:
    """One row per phase of one capture: kernels, GPU ms and host ms of a step."""
    stem = folder / "capture"
    command = [*PYTHON, PROGRAMS[kind], "--spec", json.dumps(program), "--output", f"{stem}.json"]
    sqlite = stem.with_suffix(".sqlite")
    if profiler_of_this_machine() == NSYS:
        subprocess.run(profile_command([*command, "--profiler", "nsys"], stem), check=True, stdout=subprocess.DEVNULL)
        export_report(stem.with_suffix(".nsys-rep"), sqlite)
    else:
        subprocess.run([*command, "--profiler", "torch", "--capture", str(sqlite)], check=True)
    steps, outer = program["measured_steps"], (ranges.MEASURE, ranges.STEP)
    with Trace(sqlite) as trace:
        paths, kernels, instances = trace.paths, trace.activities().query("kind == 'kernel'"), trace.range_instances()
    rows = []
    for phase_path in [outer, *((*outer, phase) for phase in ranges.PHASES)]:  # the backward pass has ranges named loss
        inside = [path_id for path_id, path in enumerate(paths) if path[: len(phase_path)] == phase_path]
        gpu_ns = kernels.loc[kernels["path_id"].isin(inside), "duration_ns"]
        phases = instances[instances["path_id"].map(paths.__getitem__) == phase_path]
        if len(phases):
            host_ms = (phases["end_ns"] - phases["start_ns"]).sum() / steps / 1e6
            row = {"kernels": len(gpu_ns), "gpu_ms": gpu_ns.sum() / steps / 1e6, "host_ms": host_ms}
            rows.append({"phase": phase_path[-1]} | row)
    return rows


def compared(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per run and phase: what marking adds, and how much captures of the same kind differ."""
    phases = rows.pivot_table(index=["run", "phase"], columns="kind", values=["gpu_ms", "host_ms"], sort=False)
    scatter = rows.groupby(["run", "phase", "kind"])["gpu_ms"].agg(lambda ms: ms.max() / ms.min() - 1)
    kernels = rows.groupby(["kind", "run", "phase"])["kernels"].first()
    gpu, host = phases["gpu_ms"], phases["host_ms"]
    table = pd.DataFrame({
        "kernels": kernels[MARKED], "kernels_unmarked": kernels[UNMARKED], "gpu_ms": gpu[UNMARKED],
        "gpu_ratio": gpu[MARKED] / gpu[UNMARKED], "gpu_scatter": scatter.groupby(["run", "phase"]).max(),
        "host_ms": host[UNMARKED], "host_added_ms": host[MARKED] - host[UNMARKED],
    })  # fmt: skip
    return table.loc[phases.index][gpu[UNMARKED] >= MIN_MS].reset_index()


if __name__ == "__main__":
    run(main)
