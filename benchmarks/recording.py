"""Recordings beside PyTorch's own profiler: `python -m benchmarks.recording [--size large] [gpt llama ...]`.

Each program runs once with torch.profiler around three of its steps, by a few lines in the program, then under
`kernel-tables record` by each profiler that is here. Compared is the time of all kernels, copies and fills in the three
steps, and which part of it lies in modules of the model. On a GPU the totals are to agree within 1 %; on a processor
they are times of different runs, which scatter.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from kernel_tables.recording.gpu import NSYS, TORCH, profiler_of_this_machine
from kernel_tables.trace import Trace

PROGRAMS = Path(__file__).with_name("programs")
ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", nargs="*", default=["gpt", "llama", "loader_and_graph"])
    parser.add_argument("--size", choices=("small", "large"), default="small")
    options = parser.parse_args()
    profilers = [TORCH] + [NSYS] * (profiler_of_this_machine() == NSYS)
    print("| program | by | kernels, ms | of torch.profiler's | in modules | a step took | errors |")
    print("|:--|:--|--:|--:|--:|:--|:--|")
    for program in options.programs:
        with tempfile.TemporaryDirectory() as folder:
            reference_ms = reference(program, options.size, Path(folder))
            for profiler in profilers:
                print(row(program, options.size, profiler, reference_ms, Path(folder)), flush=True)


def command(program: str, size: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / f"{program}.py"), size]


def reference(program: str, size: str, folder: Path) -> float:
    """The milliseconds that torch.profiler gives to all kernels, copies and fills of the three steps."""
    path = folder / "reference.json"
    subprocess.run(command(program, size), env=os.environ | {"REFERENCE": str(path)}, check=True)
    return json.loads(path.read_text())["ms"]


def row(program: str, size: str, profiler: str, reference_ms: float, folder: Path) -> str:
    """One recording as a row of the table."""
    capture = folder / f"{profiler}.sqlite"
    record = [sys.executable, "-m", "kernel_tables", "record", "--profiler", profiler, "--ranges", "modules"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    said = subprocess.run(
        [*record, "-o", str(capture), "--", *command(program, size)],
        env=environment, check=True, capture_output=True, text=True,
    ).stderr  # fmt: skip
    took = next((line.partition("a step took ")[2] for line in said.splitlines() if "a step took " in line), "?")
    if not capture.exists():
        return f"| {program} | {profiler} | | | | | {said.splitlines()[-1]} |"
    with Trace(capture) as trace:
        activities, paths = trace.activities(), trace.paths
        errors = [finding.code for finding in trace.check(expected_steps=3) if finding.severity == "error"]
    total_ms = activities["duration_ns"].sum() / 1e6
    in_modules = activities["path_id"].map(lambda path: is_in_a_module(paths[path]))
    share = activities.loc[in_modules, "duration_ns"].sum() / 1e6 / total_ms
    told = [program, profiler, f"{total_ms:.3f}", f"{total_ms / reference_ms:.4f}", f"{share:.1%}", took]
    return f"| {' | '.join(told)} | {', '.join(errors) or 'none'} |"


def is_in_a_module(path: tuple[str, ...]) -> bool:
    """Whether a range besides those of the step, the backward pass and PyTorch's own ("Optimizer.step#...") is open."""
    return any(name not in ("step", "backward") and "#" not in name for name in path)


if __name__ == "__main__":
    main()
