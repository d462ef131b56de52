"""What the benchmarks share: options, costs of whole processes, calls timed in turn, tables with ratios.

A benchmark declares what it measures, and the peer or bound that it is compared with in the same run.
"""

from __future__ import annotations

import argparse
import inspect
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
from types import UnionType
from typing import Literal, Union, get_args, get_origin

ROOT = Path(__file__).parent.parent
PYTHON = [sys.executable, "-m"]


def run(main: Callable[..., int | str | None]) -> None:
    """Calls a benchmark with what the command line says, and exits with what it returns. Its keyword-only parameters
    are options, the others arguments; a list takes several values."""
    parser = argparse.ArgumentParser(description=inspect.getmodule(main).__doc__.partition("\n")[0])
    for name, parameter in inspect.signature(main, eval_str=True).parameters.items():
        kind, optional = parameter.annotation, parameter.default is not parameter.empty
        kind = get_args(kind)[0] if get_origin(kind) in (Union, UnionType) else kind
        settings: dict = {"default": parameter.default} if optional else {}
        if kind is bool:
            settings["action"] = "store_true"
        elif get_origin(kind) is list:
            settings |= {"type": get_args(kind)[0], "nargs": "*" if optional else "+"}
        elif get_origin(kind) is Literal:
            settings |= {"type": type(get_args(kind)[0]), "choices": get_args(kind)}
        else:
            settings["type"] = kind
        if parameter.kind is parameter.KEYWORD_ONLY:
            name = f"--{name.replace('_', '-')}"
        elif optional and "nargs" not in settings:
            settings["nargs"] = "?"
        parser.add_argument(name, **settings)
    sys.exit(main(**vars(parser.parse_args())))


@dataclass(frozen=True)
class Cost:
    """Seconds of wall clock and of processors, and peak memory, of a whole process."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def cost(command: list[str], *, cwd: Path = ROOT, limit_s: float = 600, repeats: int = 1) -> Cost | str:
    """The fastest of several runs of a command, or why one failed; each is ended after `limit_s` seconds."""
    costs = []
    for _ in range(repeats):
        costs.append(_cost(command, cwd, limit_s))
        if isinstance(costs[-1], str):
            return costs[-1]
    return min(costs, key=lambda one: one.wall_s)


def _cost(command: list[str], cwd: Path, limit_s: float) -> Cost | str:
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        process = subprocess.Popen(list(map(str, command)), cwd=cwd, stdout=output, stderr=subprocess.STDOUT)
        timer = threading.Timer(limit_s, process.kill)
        timer.start()
        _, status, used = os.wait4(process.pid, 0)
        timer.cancel()
        wall_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if wall_s >= limit_s:
            return f"ended after {limit_s:g} s"
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
    errors = [line for line in lines if line.startswith(("ERROR", "SKIPPED"))]  # nsys stats ends with 0 even then
    if process.returncode or errors:
        return f"failed with status {process.returncode}: {' '.join(errors or lines[-1:])[:100]}"
    return Cost(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


class Costs:
    """A table of whole processes, printed as it grows; a ratio is to the first line."""

    def __init__(self, title: str, ratio_of: Literal["wall_s", "cpu_s"]) -> None:
        self.ratio_of, self.first = ratio_of, None
        print(f"{title}, {os.cpu_count()} cores\n")
        unit = {"wall_s": "wall time", "cpu_s": "CPU time"}[ratio_of]
        print_row("whole process", "wall s", "CPU s", "peak MiB", f"{unit} ÷ first line's", heading=True)

    def measure(self, name: str, command: list[str], **settings) -> Cost | str:
        """Prints and returns what a command costs; `settings` are those of `cost`."""
        measured = cost(command, **settings)
        if isinstance(measured, str):
            print_row(name, measured, "", "", "")
            return measured
        self.first = self.first or measured
        ratio = getattr(measured, self.ratio_of) / getattr(self.first, self.ratio_of)
        print_row(name, f"{measured.wall_s:.2f}", f"{measured.cpu_s:.2f}", f"{measured.peak_mib:.0f}", f"{ratio:.2f}")
        return measured


def in_turn(calls: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """What each call returns, by its name: all are called in turn, so that what changes with time changes for all."""
    values: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            values[name].append(call())
    return values


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """How long a call takes."""
    began = clock()
    work()
    return clock() - began


def print_row(*cells: object, heading: bool = False) -> None:
    """Prints a row of a Markdown table at once: numbers with four digits after the point, lists with commas."""
    print(f"| {' | '.join(map(_cell, cells))} |", flush=True)
    if heading:
        print(f"| --- |{' ---: |' * (len(cells) - 1)}")


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return f"{value:.4f}" if isinstance(value, float) else str("" if value is None else value)


def snakemake_command(folder: Path, settings: Mapping, cores: int | str, *options: str) -> list[str]:
    """The command that measures in FOLDER by these settings, which it finds there; to be run in ROOT. Targets follow
    after `--`."""
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / "settings.yaml"
    written.write_text(json.dumps(settings, indent=1))  # JSON is YAML
    command = [*PYTHON, "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder)]
    return [*command, "--cores", str(cores), "--configfile", str(written), *options]
