"""Compares recordings with PyTorch's own profiler: `python -m benchmarks.recording [--size large] [gpt ...]`.

Each program runs once with torch.profiler around three of its steps, by a few lines in the program, then under
`kernel-tables record` with each available profiler. Compared are the time of all kernels, copies and fills in the three
steps, and the part of it in modules of the model. On a GPU the totals should agree within 1 %; on a CPU they are times
of different runs, which vary. The ranges conserve time: the outermost ranges and launches outside of any add up to the
sum of an SQL query over the capture, to the nanosecond.

--keep keeps the output and the capture of each recording, and all rows in recordings.json.
"""

import gzip
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Literal

from benchmarks.harness import PYTHON, ROOT, print_row, run
from kernel_recorder.gpu import NSYS, TORCH, profiler_of_this_machine
from kernel_tables.trace import Trace

PROGRAMS = Path(__file__).with_name("programs")
DEFAULT = ["gpt", "llama", "loader_and_graph"]
TABLES = [f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")]
COLUMNS = {
    "program": "program", "by": "by", "ms": "kernels, ms", "of_reference": "÷ torch.profiler's",
    "in_modules": "in modules", "not_conserved_ns": "not conserved, ns", "cost": "what it cost", "errors": "errors",
}  # fmt: skip


def main(programs: list[str] = DEFAULT, *, size: Literal["small", "large"] = "small", keep: Path | None = None) -> None:
    profilers = [NSYS] * (profiler_of_this_machine() == NSYS) + [TORCH]
    print_row(*COLUMNS.values(), heading=True)
    rows = []
    for program in programs:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(PROGRAMS / f"{program}.py"), size]
            reference_ms = profiled_ms(command, Path(folder))
            for profiler in profilers:
                capture = Path(folder, f"{program}.{profiler}.sqlite")
                rows.append({"program": program, "by": profiler} | recorded(command, profiler, reference_ms, capture))
                print_row(*(rows[-1].get(column) for column in COLUMNS))
                if keep:
                    keep_recording(capture, rows, keep)


def profiled_ms(command: list[str], folder: Path) -> float:
    """The milliseconds of all kernels, copies and fills of the three steps, by torch.profiler."""
    path = folder / "reference.json"
    subprocess.run(command, env=os.environ | {"REFERENCE": str(path)}, check=True)
    return json.loads(path.read_text())["ms"]


def recorded(command: list[str], profiler: str, reference_ms: float, capture: Path) -> dict:
    """The COLUMNS of one recording; the output of the command is next to its capture."""
    options = ["--profiler", profiler, "--steps", "3", "--ranges", "modules", "-o", str(capture)]
    record = [*PYTHON, "kernel_tables", "record", *options]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([*record, "--", *command], env=environment, check=True, capture_output=True, text=True)
    capture.with_suffix(".txt").write_text(done.stderr)
    lines = done.stderr.splitlines()
    if not capture.exists():
        return {"errors": lines[-1:]}
    cost = next((line.partition(" took ")[2] for line in lines if "recording took" in line), None)
    return {"cost": cost} | totals(capture, reference_ms)


def totals(capture: Path, reference_ms: float) -> dict:
    """The time on the device, also relative to torch.profiler's; its share in modules; what ranges do not conserve."""
    with Trace(capture) as trace:
        activities, paths, tree = trace.activities(), trace.paths, trace.range_tree()
        errors = [finding.code for finding in trace.check(expected_steps=3) if finding.severity == "error"]
    duration_ns, names = activities["duration_ns"], activities["path_id"].map(paths.__getitem__)
    outermost = tree.loc[tree["depth"] == 0, ["gpu_time_ns", "memop_time_ns"]].to_numpy().sum()
    outside = duration_ns[names.map(len) == 0].sum()
    total_ns = by_sql(capture)
    return {
        "ms": total_ns / 1e6, "of_reference": total_ns / 1e6 / reference_ms,
        "in_modules": float(duration_ns[names.map(is_in_a_module)].sum() / total_ns),
        "not_conserved_ns": int(outermost + outside - total_ns), "errors": errors,
    }  # fmt: skip


def by_sql(capture: Path) -> int:
    """The nanoseconds of all kernels, copies, fills and graphs, without the engine."""
    with closing(sqlite3.connect(capture)) as database:
        present = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        sums = [f'SELECT sum("end" - start) AS ns FROM {table}' for table in TABLES if table in present]
        return database.execute(f"SELECT sum(ns) FROM ({' UNION ALL '.join(sums)})").fetchone()[0]


def is_in_a_module(path: tuple[str, ...]) -> bool:
    """Whether a range other than the step, the backward pass and PyTorch's ranges ("Optimizer.step#...") is open."""
    return any(name not in ("step", "backward") and "#" not in name for name in path)


def keep_recording(capture: Path, rows: list[dict], folder: Path) -> None:
    """Copies the files of the last recording, and writes all rows."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recordings.json").write_text(json.dumps(rows, indent=1))
    (folder / f"{capture.stem}.txt").write_bytes(capture.with_suffix(".txt").read_bytes())
    if capture.exists():
        (folder / f"{capture.name}.gz").write_bytes(gzip.compress(capture.read_bytes()))


if __name__ == "__main__":
    run(main)
