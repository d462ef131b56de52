"""Shared by all benchmarks: options, costs of processes, generated grids, tables with ratios.

A benchmark compares this project's commands with a lower bound or another tool that it measures at the same time.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workflow.command import options_of

ROOT = Path(__file__).parent.parent
PYTHON = [sys.executable, "-m"]
GENERATED_MODEL = {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
# By number of runs, how many values each dimension of a generated grid has; there are always three modes.
VALUE_COUNTS = {
    60: {"models": 5, "context_lengths": 4, "precisions": 1, "batch_sizes": 1},
    600: {"models": 10, "context_lengths": 5, "precisions": 2, "batch_sizes": 2},
    6000: {"models": 25, "context_lengths": 20, "precisions": 2, "batch_sizes": 2},
}


def run(main: Callable[..., int | str | None]) -> None:
    """Calls a benchmark with the options of the command line, and exits with what it returns."""
    sys.exit(main(**options_of(main)))


@dataclass(frozen=True)
class Cost:
    """Seconds of wall clock and of processors, and peak memory, of an entire process."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def cost(command: list[str], *, cwd: Path = ROOT, limit_s: float = 600, repeats: int = 1) -> Cost | str:
    """The fastest of several runs of a command, or why one failed; each is killed after `limit_s` seconds."""
    costs = []
    for _ in range(repeats):
        costs.append(_cost(command, cwd, limit_s))
        if isinstance(costs[-1], str):
            return costs[-1]
    return min(costs, key=lambda run_cost: run_cost.wall_s)


def _cost(command: list[str], cwd: Path, limit_s: float) -> Cost | str:
    """The cost of one run of a command, or why it failed."""
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        process = subprocess.Popen(list(map(str, command)), cwd=cwd, stdout=output, stderr=subprocess.STDOUT)
        timer = threading.Timer(limit_s, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        wall_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if wall_s >= limit_s:
            return f"killed after {limit_s:g} s"
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
    errors = [line for line in lines if line.startswith(("ERROR", "SKIPPED"))]  # nsys stats ends with 0 even then
    if process.returncode or errors:
        return f"failed with status {process.returncode}: {' '.join(errors or lines[-1:])[:100]}"
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


class Costs:
    """A table of the costs of processes, printed as it grows. The last column is the ratio to the first line."""

    def __init__(self, title: str, ratio_of: Literal["wall_s", "cpu_s"]) -> None:
        self.ratio_of, self.first = ratio_of, None
        print(f"{title}, {os.cpu_count()} cores\n")
        unit = {"wall_s": "wall time", "cpu_s": "CPU time"}[ratio_of]
        print_row("process", "wall s", "CPU s", "peak MiB", f"{unit} ÷ first line's", heading=True)

    def measure(self, name: str, command: list[str], **settings) -> Cost | str:
        """Prints and returns the cost of a command; `settings` are those of `cost`."""
        result = cost(command, **settings)
        if isinstance(result, str):
            print_row(name, result, "", "", "")
            return result
        self.first = self.first or result
        ratio = getattr(result, self.ratio_of) / getattr(self.first, self.ratio_of)
        print_row(name, f"{result.wall_s:.2f}", f"{result.cpu_s:.2f}", f"{result.peak_mib:.0f}", f"{ratio:.2f}")
        return result


def print_row(*cells: object, heading: bool = False) -> None:
    """Prints a row of a Markdown table, at once: floats with four decimals, None as an empty cell."""
    print(f"| {' | '.join(map(_cell, cells))} |", flush=True)
    if heading:
        print(f"| --- |{' ---: |' * (len(cells) - 1)}")


def _cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str("" if value is None else value)


def config_with_runs(runs: int) -> dict:
    """This project's configuration with a grid of that many runs, of identical models, in every mode. Imports nothing
    heavy, since the peak memory of a started process includes that of the process that started it."""
    import yaml

    counts = VALUE_COUNTS[runs]
    names = [f"model{number}" for number in range(counts["models"])]
    product = {
        "models": names,
        "context_lengths": [16 * (number + 1) for number in range(counts["context_lengths"])],
        "modes": ["forward", "forward_backward", "train_step"],
        "precisions": ["fp32", "bf16"][: counts["precisions"]],
        "batch_sizes": [4 * (number + 1) for number in range(counts["batch_sizes"])],
    }
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    config |= {"grid": "benchmark", "counters": {"runs": ""}}  # counters of no run
    config["models"] |= dict.fromkeys(names, GENERATED_MODEL)
    config["grids"]["benchmark"] = [product]
    return config


def snakemake_command(folder: Path, settings: Mapping, cores: int | str, *options: str) -> list[str]:
    """The command, to be run in ROOT, that measures in `folder` with these settings. Targets follow after `--`."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "settings.yaml"
    config.write_text(json.dumps(settings, indent=1))  # JSON is YAML
    command = [*PYTHON, "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder)]
    return [*command, "--cores", str(cores), "--configfile", str(config), *options]
