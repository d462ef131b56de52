"""Tests `snakemake compare` on this machine: `python -m benchmarks.comparison TRIAL FOLDER`.

same    a grid twice: no cell may be reported to differ
slower  one cell, and the same with a slower softmax (benchmarks/programs/slower_softmax.py): it must be reported
        slower, and the kernel that takes longer must be the first in the list

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
from workflow.scripts import process_steps

SAME, SLOWER_SOFTMAX = "same", "slower"
SIDES = "before", "after"
PLANTED = {"replace": {"cs336_model.model.transformer:softmax": "benchmarks.programs.slower_softmax:softmax"}}
SLOWER_KERNEL = "exp"  # in the name of the kernel that takes longer
GRIDS = {
    SAME: {
        "models": ["small", "medium", "large", "xl", "2.7B"], "context_lengths": [128, 256, 512, 1024],
        "modes": ["forward", "forward_backward", "train_step"],
    },
    SLOWER_SOFTMAX: {"models": ["large"], "context_lengths": [512], "modes": ["forward"]},
}  # fmt: skip
ENDING_S = 60
Tables = dict[str, pd.DataFrame]


def main(
    trial: Literal["same", "slower"],
    folder: Path,
    *,
    processes: int = 7,
    warmup_steps: int = 2,
    measured_steps: int = 5,
    models: list[str] | None = None,
    context_lengths: list[int] | None = None,
    modes: list[str] | None = None,
    configfile: list[str] | None = None,
    cores: int = 1,
    limit_s: float | None = None,
) -> str | None:
    options = Namespace(**locals() | {"folder": folder.resolve()})
    rounds = measured(options)
    if rounds < 2:
        return f"{rounds} rounds were finished on both sides: give more time"
    sides = [options.folder / side / "results" for side in SIDES]
    for side in sides:
        process_steps.main(plan=side / "grid.json", folder=side / "processes", processes=rounds)
    tables = outputs.comparison(*map(read_results, sides))
    print(document.summary(tables["cells"]))
    return (difference_reported if trial == SAME else slowdown_missed)(tables)


def measured(options: Namespace) -> int:
    """Measures both sides, and returns how many processes of every run both have. SystemExit names the log of a side
    that fails. All processes have ended afterwards."""
    started = time.monotonic()
    sides = {side: started_side(options, side) for side in SIDES}
    try:
        for name, side in sides.items():
            limit_s = None if options.limit_s is None else max(0.0, options.limit_s - (time.monotonic() - started))
            with suppress(subprocess.TimeoutExpired):
                if status := side.wait(limit_s):
                    raise SystemExit(f"{name}: Snakemake ended with status {status}; see {log_of(options, name)}")
    finally:
        for side in sides.values():
            end(side)
    print(f"measured for {time.monotonic() - started:.0f} s", flush=True)
    return min(finished_rounds(options.folder / side / "results") for side in SIDES)


def end(side: subprocess.Popen) -> None:
    """Ends a Snakemake and its jobs, for which it would wait."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if side.poll() is None:
            os.killpg(side.pid, number)
            with suppress(subprocess.TimeoutExpired):
                side.wait(ENDING_S)


def log_of(options: Namespace, side: str) -> Path:
    """The log of a side's Snakemake."""
    return options.folder / side / "snakemake.log"


def started_side(options: Namespace, side: str) -> subprocess.Popen:
    """A Snakemake that measures one side, in a separate folder."""
    targets = ["results/grid.json", f"results/processes/{options.processes}.done"]
    if options.trial == SLOWER_SOFTMAX:
        targets += ["results/tables/provenance.json"]
    folder, settings = options.folder / side, config(options, side)
    command = [*snakemake_command(folder, settings, options.cores, *(options.configfile or [])), "--", *targets]
    with log_of(options, side).open("w") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def config(options: Namespace, side: str) -> dict:
    """The settings of one side."""
    grid = {key: getattr(options, key) or values for key, values in GRIDS[options.trial].items()}
    timing = {key: getattr(options, key) for key in ("processes", "warmup_steps", "measured_steps")}
    is_planted = options.trial == SLOWER_SOFTMAX and side == "after"
    trial = {"grid": "trial", "grids": {"trial": [grid]}, "timing": timing | {"accuracy": False}}
    return trial | {"counters": {"runs": ""}} | ({"program": PLANTED} if is_planted else {})


def finished_rounds(results: Path) -> int:
    """The number of rounds in which every run was timed."""
    return next(number for number in itertools.count() if not (results / "processes" / f"{number + 1}.done").exists())


def difference_reported(tables: Tables) -> str | None:
    """The failure if a cell of the same program is reported to differ; prints how much the sides vary."""
    cells = tables["cells"]
    distance = (cells["ratio"] - 1).abs()
    contains_1 = cells["ratio_low"].le(1) & cells["ratio_high"].ge(1)
    print(
        f"{len(cells)} cells of {cells['processes_before'].min():.0f} processes per side: ratios"
        f" {cells['ratio'].min():.4f} to {cells['ratio'].max():.4f}, median distance from 1 {distance.median():.2%};"
        f" {contains_1.sum()} intervals contain 1; {cells['p'].lt(0.05).sum()} of the p below 0.05, the smallest"
        f" {cells['p'].min():.2g}, adjusted {cells['p_adjusted'].min():.2g}"
    )
    reported = cells.loc[cells["verdict"].isin((SLOWER, FASTER)), "run"]
    return f"reported to differ, and are the same: {', '.join(reported)}" if len(reported) else None


def slowdown_missed(tables: Tables) -> str | None:
    """The failure if the planted slowdown is not reported, or another kernel comes first."""
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
