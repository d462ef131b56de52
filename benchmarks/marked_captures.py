"""What marking the backward pass changes in a capture: `python -m benchmarks.marked_captures FOLDER [RUN ...]`.

Every run is captured with its backward pass marked and without, in turn and as often as --rounds says, on one and the
same GPU. Compared are, by phase over 0.1 ms, the number of kernels and their GPU time, which are not to change, and how
long the host is in a step and in its backward pass, where marking has its cost. How far two captures of the same kind
are apart stands beside it. Status 1 where a number of kernels differs, or GPU time by more than 0.5 %.

Takes the GPU for itself without a lease; about nine seconds a capture. Rows are in FOLDER/marked.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import pandas as pd
import yaml

from benchmarks.harness import PYTHON, ROOT, print_row, run
from cs336_model import ranges
from kernel_recorder.gpu import NSYS, profiler_of_this_machine
from kernel_recorder.nsys_profile import profile_command
from kernel_tables.reading.nsys import export_report
from kernel_tables.trace import Trace
from profile_grid.study.runs import checked_config, grid_runs, specification
from profile_grid.study.stages import CAPTURE

MARKED, UNMARKED = "marked", "unmarked"
PROGRAMS = {MARKED: "cs336_model.program.benchmark", UNMARKED: "benchmarks.programs.without_backward_parts"}
MEANING_MS, MOST_CHANGED = 0.1, 0.005
MODELS, MODES = ("small", "large", "2.7B"), ("forward_backward", "train_step")
DEFAULT = [f"{model}_ctx512_{mode}" for model, mode in product(MODELS, MODES)]


def main(folder: Path, runs: list[str] = DEFAULT, *, grid: str = "cs336-2025", rounds: int = 2) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    config = checked_config(yaml.safe_load((ROOT / "config.yaml").read_text()) | {"grid": grid})
    of_grid, rows = grid_runs(config), []
    for number, name in product(range(rounds), runs):
        program = json.loads(specification(config, of_grid[name], CAPTURE))["program"]
        for kind in (MARKED, UNMARKED) if number % 2 == 0 else (UNMARKED, MARKED):
            rows += [{"run": name, "kind": kind, "round": number} | row for row in captured(program, kind, folder)]
            (folder / "marked.json").write_text(json.dumps(rows, indent=1))
            print(f"round {number + 1} of {rounds}: {name} {kind}", file=sys.stderr, flush=True)
    table = compared(pd.DataFrame(rows))
    print_row(*table.columns, heading=True)
    for row in table.itertuples(index=False):
        print_row(*row)
    changed = table["gpu_ratio"].sub(1).abs()
    print(
        f"{len(table)} phases: GPU time changes by {changed.max():.2%} at most, by {changed.median():.2%} in the"
        f" median; two captures of the same kind differ by {table['gpu_scatter'].max():.2%} at most"
    )
    return int(((table["kernels"] != table["kernels_unmarked"]) | (changed > MOST_CHANGED)).any())


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
    for path in [outer, *((*outer, phase) for phase in ranges.PHASES)]:  # a loss has ranges in the backward pass too
        inside = [number for number, one in enumerate(paths) if one[: len(path)] == path]
        gpu_ns = kernels.loc[kernels["path_id"].isin(inside), "duration_ns"]
        own = instances[instances["path_id"].map(paths.__getitem__) == path]
        if len(own):
            host_ms = (own["end_ns"] - own["start_ns"]).sum() / steps / 1e6
            row = {"kernels": len(gpu_ns), "gpu_ms": gpu_ns.sum() / steps / 1e6, "host_ms": host_ms}
            rows.append({"phase": path[-1]} | row)
    return rows


def compared(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per run and phase: what marking adds, and how far captures of the same kind are apart."""
    table = []
    for (name, phase), cell in rows.groupby(["run", "phase"], sort=False):
        of = {kind: cell[cell["kind"] == kind] for kind in PROGRAMS}
        gpu = {kind: of[kind]["gpu_ms"].mean() for kind in PROGRAMS}
        if gpu[UNMARKED] < MEANING_MS:
            continue
        spread = max(of[kind]["gpu_ms"].max() / of[kind]["gpu_ms"].min() - 1 for kind in PROGRAMS)
        host = {kind: of[kind]["host_ms"].mean() for kind in PROGRAMS}
        table.append({
            "run": name, "phase": phase, "kernels": of[MARKED]["kernels"].iat[0],
            "kernels_unmarked": of[UNMARKED]["kernels"].iat[0], "gpu_ms": gpu[UNMARKED],
            "gpu_ratio": gpu[MARKED] / gpu[UNMARKED], "gpu_scatter": spread,
            "host_ms": host[UNMARKED], "host_added_ms": host[MARKED] - host[UNMARKED],
        })  # fmt: skip
    return pd.DataFrame(table)


if __name__ == "__main__":
    run(main)
