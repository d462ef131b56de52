"""Recordings beside PyTorch's own profiler: `python -m benchmarks.recording [--size large] [--keep FOLDER] [gpt ...]`.

Each program runs once with torch.profiler around three of its steps, by a few lines in the program, then under
`kernel-tables record` by each profiler that is here. Compared is the time of all kernels, copies and fills in the three
steps, and which part of it lies in modules of the model. On a GPU the totals are to agree within 1 %; on a processor
they are times of different runs, which scatter. The ranges conserve time: what the outermost ones hold and what was
launched outside of any is what SQL sums over the capture, to the nanosecond.

--keep leaves of each recording what the command said and its capture, and all rows in recordings.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

from kernel_recorder.gpu import NSYS, TORCH, profiler_of_this_machine
from kernel_tables.trace import Trace

PROGRAMS = Path(__file__).with_name("programs")
ROOT = Path(__file__).parents[1]
TABLES = [f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")]
COLUMNS = {
    "program": "program", "by": "by", "ms": "kernels, ms", "of_reference": "of torch.profiler's",
    "in_modules": "in modules", "not_conserved_ns": "not conserved, ns", "cost": "what it cost", "errors": "errors",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", nargs="*", default=["gpt", "llama", "loader_and_graph"])
    parser.add_argument("--size", choices=("small", "large"), default="small")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave captures and rows there")
    options = parser.parse_args()
    profilers = [NSYS] * (profiler_of_this_machine() == NSYS) + [TORCH]
    print(f"| {' | '.join(COLUMNS.values())} |\n|{':--|' * len(COLUMNS)}")
    rows = []
    for program in options.programs:
        with tempfile.TemporaryDirectory() as folder:
            reference_ms = reference(program, options.size, Path(folder))
            for profiler in profilers:
                rows.append(row(program, options.size, profiler, reference_ms, Path(folder)))
                print(f"| {' | '.join(map(shown, rows[-1].values()))} |", flush=True)
                if options.keep:
                    keep(Path(folder), rows, options.keep)


def command(program: str, size: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / f"{program}.py"), size]


def reference(program: str, size: str, folder: Path) -> float:
    """The milliseconds that torch.profiler gives to all kernels, copies and fills of the three steps."""
    path = folder / "reference.json"
    subprocess.run(command(program, size), env=os.environ | {"REFERENCE": str(path)}, check=True)
    return json.loads(path.read_text())["ms"]


def row(program: str, size: str, profiler: str, reference_ms: float, folder: Path) -> dict:
    """One recording: a value for each of COLUMNS. Its capture and what was said lie in the folder."""
    capture = folder / f"{program}.{profiler}.sqlite"
    record = [sys.executable, "-m", "kernel_tables", "record", "--profiler", profiler, "--ranges", "modules"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    said = subprocess.run(
        [*record, "-o", str(capture), "--", *command(program, size)],
        env=environment, check=True, capture_output=True, text=True,
    ).stderr  # fmt: skip
    capture.with_suffix(".txt").write_text(said)
    cost = next((line.partition(" took ")[2] for line in said.splitlines() if "recording took" in line), None)
    head = {"program": program, "by": profiler}
    if not capture.exists():
        return head | dict.fromkeys(list(COLUMNS)[2:-1]) | {"errors": [said.splitlines()[-1]]}
    return head | totals(capture, reference_ms) | {"cost": cost, "errors": errors(capture)}


def totals(capture: Path, reference_ms: float) -> dict:
    """The time on the device, also as a part of torch.profiler's; its share in modules; what ranges do not conserve."""
    with Trace(capture) as trace:
        activities, paths, tree = trace.activities(), trace.paths, trace.range_tree()
    duration_ns, names = activities["duration_ns"], activities["path_id"].map(paths.__getitem__)
    outermost = tree.loc[tree["depth"] == 0, ["gpu_time_ns", "memop_time_ns"]].to_numpy().sum()
    outside = duration_ns[names.map(len) == 0].sum()
    total_ns = by_sql(capture)
    return {
        "ms": total_ns / 1e6, "of_reference": total_ns / 1e6 / reference_ms,
        "in_modules": float(duration_ns[names.map(is_in_a_module)].sum() / total_ns),
        "not_conserved_ns": int(outermost + outside - total_ns),
    }  # fmt: skip


def by_sql(capture: Path) -> int:
    """The nanoseconds of all kernels, copies, fills and graphs, without the engine."""
    with sqlite3.connect(capture) as database:
        there = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        sums = [f'SELECT sum("end" - start) AS ns FROM {table}' for table in TABLES if table in there]
        return database.execute(f"SELECT sum(ns) FROM ({' UNION ALL '.join(sums)})").fetchone()[0]


def errors(capture: Path) -> list[str]:
    with Trace(capture) as trace:
        return [finding.code for finding in trace.check(expected_steps=3) if finding.severity == "error"]


def is_in_a_module(path: tuple[str, ...]) -> bool:
    """Whether a range besides those of the step, the backward pass and PyTorch's own ("Optimizer.step#...") is open."""
    return any(name not in ("step", "backward") and "#" not in name for name in path)


def keep(folder: Path, rows: list[dict], target: Path) -> None:
    """Copies what the last recording left, and writes all rows."""
    target.mkdir(parents=True, exist_ok=True)
    stem = "{program}.{by}".format(**rows[-1])
    (target / f"{stem}.txt").write_bytes((folder / f"{stem}.txt").read_bytes())
    (target / "recordings.json").write_text(json.dumps(rows, indent=1))
    if (capture := folder / f"{stem}.sqlite").exists():
        (target / f"{stem}.sqlite.gz").write_bytes(gzip.compress(capture.read_bytes()))


def shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return f"{value:.4f}" if isinstance(value, float) else str("" if value is None else value)


if __name__ == "__main__":
    main()
