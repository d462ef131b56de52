"""Tests `snakemake compare` on this machine: `python -m benchmarks.comparison TRIAL FOLDER`.

same    compares a grid with itself: no run may be reported to differ
slower  compares a run with the same one with a slower softmax (benchmarks/programs/slower_softmax.py): it must be
        reported slower, and the kernel that takes longer must be the first in the list

Both sides are measured at the same time, by two Snakemakes that take turns on the GPUs, so that a change over time is
not mistaken for a difference. The exit status is 1 if the comparison reports something else. --limit-s stops
measuring; the rounds that both sides have finished are compared.
"""

import itertools
import os
import signal
import subprocess
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pandas as pd

from benchmarks.harness import ROOT, run, snakemake_command
from profile_grid.comparing import document, outputs
from profile_grid.comparing.cells import FASTER, SLOWER
from profile_grid.comparing.results import read_results
from profile_grid.tables.evidence import FEWEST_PROCESSES
from workflow.scripts import process_steps

SAME, SLOWER_SOFTMAX = "same", "slower"
SIDES = "before", "after"
PROGRAM_OF_SLOWER = {"replace": {"cs336_model.model.transformer:softmax": "benchmarks.programs.slower_softmax:softmax"}}
SLOWER_KERNEL = "exp"  # in the name of the kernel that takes longer
GRIDS = {
    SAME: {
        "models": ["small", "medium", "large", "xl", "2.7B"], "context_lengths": [128, 256, 512, 1024],
        "modes": ["forward", "forward_backward", "train_step"],
    },
    SLOWER_SOFTMAX: {"models": ["large"], "context_lengths": [512], "modes": ["forward"]},
}  # fmt: skip
MAX_ENDING_S = 60  # after a signal
Tables = dict[str, pd.DataFrame]


def main(
    trial: Literal["same", "slower"], folder: Path, *, processes: int = 7, warmup_steps: int = 2,
    measured_steps: int = 5, models: list[str] | None = None, context_lengths: list[int] | None = None,
    modes: list[str] | None = None, configfile: list[str] | None = None, cores: int = 1, limit_s: float | None = None,
) -> str | None:  # fmt: skip
    """Returns the failure, None if the comparison reports what it should."""
    options = Namespace(**locals())  # all parameters
    options.folder = folder.resolve()
    rounds = measure_sides(options)
    if rounds < FEWEST_PROCESSES:
        return (
            f"both sides finished {rounds} rounds, and a comparison needs {FEWEST_PROCESSES}: allow more time with"
            " --limit-s"
        )
    sides = [options.folder / side / "results" for side in SIDES]
    for side in sides:
        process_steps.main(plan=side / "grid.json", folder=side / "processes", processes=rounds)
    tables = outputs.comparison(*map(read_results, sides))
    print(document.summary(tables["cells"]))
    failure_of = false_difference if trial == SAME else missed_slowdown
    return failure_of(tables)


def measure_sides(options: Namespace) -> int:
    """Measures both sides, and returns the number of rounds that both have finished. In a round, every run is timed in
    one process. If a side fails, SystemExit names its log. All processes have ended afterwards."""
    started = time.monotonic()
    snakemakes = {side: start_side(options, side) for side in SIDES}
    try:
        for side, snakemake in snakemakes.items():
            limit_s = None if options.limit_s is None else max(0.0, options.limit_s - (time.monotonic() - started))
            with suppress(subprocess.TimeoutExpired):
                if status := snakemake.wait(limit_s):
                    raise SystemExit(f"{side}: Snakemake ended with status {status}; see {log_path(options, side)}")
    finally:
        for snakemake in snakemakes.values():
            end_group(snakemake)
    print(f"measured for {time.monotonic() - started:.0f} s", flush=True)
    return min(finished_rounds(options.folder / side / "results") for side in SIDES)


def end_group(snakemake: subprocess.Popen) -> None:
    """Ends a Snakemake and its jobs; a signal to Snakemake alone would let the jobs finish first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if snakemake.poll() is None:
            os.killpg(snakemake.pid, number)
            with suppress(subprocess.TimeoutExpired):
                snakemake.wait(MAX_ENDING_S)


def log_path(options: Namespace, side: str) -> Path:
    return options.folder / side / "snakemake.log"


def start_side(options: Namespace, side: str) -> subprocess.Popen:
    """Starts a Snakemake that measures one side, in a separate folder."""
    targets = ["results/grid.json", f"results/processes/{options.processes}.done"]
    if options.trial == SLOWER_SOFTMAX:
        targets += ["results/tables/provenance.json"]  # needs captures, whose kernels are compared
    folder, settings = options.folder / side, settings_of_side(options, side)
    command = [*snakemake_command(folder, settings, options.cores, *(options.configfile or [])), "--", *targets]
    with log_path(options, side).open("w") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def settings_of_side(options: Namespace, side: str) -> dict:
    grid = {key: getattr(options, key) or default for key, default in GRIDS[options.trial].items()}
    timing = {key: getattr(options, key) for key in ("warmup_steps", "measured_steps")}
    timing["processes"] = options.processes + 1  # the last round of a grid has no marker that it is finished
    is_slower = options.trial == SLOWER_SOFTMAX and side == "after"
    settings = {"grid": "trial", "grids": {"trial": [grid]}, "timing": timing | {"accuracy": False}}
    return settings | {"counters": {"runs": ""}} | ({"program": PROGRAM_OF_SLOWER} if is_slower else {})


def finished_rounds(results: Path) -> int:
    """The number of rounds that are marked as finished, without gaps from the first: every run was timed in them."""
    return next(number for number in itertools.count() if not (results / "processes" / f"{number + 1}.done").exists())


def false_difference(tables: Tables) -> str | None:
    """The failure, if a run of the same program is reported to differ. Prints how much the sides vary."""
    cells = tables["cells"]
    distance_from_1 = (cells["ratio"] - 1).abs()
    contains_1 = cells["ratio_low"].le(1) & cells["ratio_high"].ge(1)
    print(
        f"{len(cells)} cells of {cells['processes_before'].min():.0f} processes per side: ratios"
        f" {cells['ratio'].min():.4f} to {cells['ratio'].max():.4f}, median distance from 1"
        f" {distance_from_1.median():.2%}; {contains_1.sum()} intervals contain 1; {cells['p'].lt(0.05).sum()} of the p"
        " below 0.05, the smallest"
        f" {cells['p'].min():.2g}, adjusted {cells['p_adjusted'].min():.2g}"
    )
    reported = cells.loc[cells["verdict"].isin((SLOWER, FASTER)), "run"]
    return f"reported to differ, and are the same: {', '.join(reported)}" if len(reported) else None


def missed_slowdown(tables: Tables) -> str | None:
    """The failure, if the planted slowdown is not reported, or another kernel comes first."""
    cells, changes = tables["cells"], tables["changes"]
    kernels = changes[changes["level"] == "kernel"]
    for row in kernels.itertuples():
        print(f"{row.change}: {row.ms_before:.3f} -> {row.ms_after:.3f} ms, {row.name[:160]}")
    if (cells["verdict"] != SLOWER).any():
        return "the slowdown was not reported: " + ", ".join(cells["verdict"])
    first = kernels.iloc[0]["name"] if len(kernels) else "none"
    return None if SLOWER_KERNEL in first else f"another kernel comes first: {first}"


if __name__ == "__main__":
    run(main)
