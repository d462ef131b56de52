"""Whether `snakemake compare` tells what it should on this machine: `python -m benchmarks.comparison TRIAL FOLDER`.

same    a grid twice: no cell may be told to differ
slower  one cell, and the same with a slower softmax (benchmarks/programs/slower_softmax.py): it has to be told slower,
        and of its kernels the one that takes longer has to be named first

Both sides are measured at the same time, by two Snakemakes that take turns on the GPUs, so that nothing that changes
with time is taken for a difference. Status 1 where the comparison tells something else. With --limit-s measuring ends
then, and rounds that both sides have finished are compared.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pandas as pd

from benchmarks.snakemake_command import ROOT, snakemake_command
from profile_grid.comparing.cells import FASTER, SLOWER
from profile_grid.comparing.document import summary
from profile_grid.comparing.results import read_results
from profile_grid.comparing.tables import comparison
from workflow.scripts import process_steps

SAME, SLOWER_SOFTMAX = "same", "slower"
SIDES = "before", "after"
PLANTED = {"replace": {"cs336_model.model.transformer:softmax": "benchmarks.programs.slower_softmax:softmax"}}
NAMED = "exp"  # in the name of the kernel that takes longer
GRIDS = {
    SAME: (
        ["small", "medium", "large", "xl", "2.7B"],
        [128, 256, 512, 1024],
        ["forward", "forward_backward", "train_step"],
    ),
    SLOWER_SOFTMAX: (["large"], [512], ["forward"]),
}
ENDING_S = 60
Tables = dict[str, pd.DataFrame]


def main(arguments: list[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    processes = measured(options)
    if processes < 2:
        raise SystemExit(f"{processes} rounds were finished on both sides: give more time")
    for side in SIDES:
        results = options.folder / side / "results"
        process_steps.main(
            ["--plan", str(results / "grid.json"), "--folder", str(results / "processes"), f"--processes={processes}"]
        )
    tables = comparison(*(read_results(options.folder / side / "results") for side in SIDES))
    print(summary(tables["cells"]))
    if complaint := (nothing_told if options.trial == SAME else slower_told)(tables):
        raise SystemExit(complaint)


def measured(options: argparse.Namespace) -> int:
    """Measures both sides; how many processes of every run both have. SystemExit where a side fails names its log."""
    started = time.monotonic()
    with ExitStack() as stack:
        sides = {side: stack.enter_context(ended_afterwards(started_side(options, side))) for side in SIDES}
        for name, side in sides.items():
            left = None if options.limit_s is None else max(0.0, options.limit_s - (time.monotonic() - started))
            with suppress(subprocess.TimeoutExpired):
                if status := side.wait(left):
                    raise SystemExit(f"{name}: Snakemake ended with status {status}; see {log_of(options, name)}")
    print(f"measured for {time.monotonic() - started:.0f} s", flush=True)
    return min(rounds(options.folder / side / "results") for side in SIDES)


@contextmanager
def ended_afterwards(side: subprocess.Popen) -> Iterator[subprocess.Popen]:
    """The side; none of its processes outlives the block, whatever ends it."""
    try:
        yield side
    finally:
        if side.poll() is None:
            os.killpg(side.pid, signal.SIGTERM)  # its jobs too: it would wait for those
            try:
                side.wait(ENDING_S)
            except subprocess.TimeoutExpired:
                os.killpg(side.pid, signal.SIGKILL)
                side.wait()


def log_of(options: argparse.Namespace, side: str) -> Path:
    """Where a side's Snakemake writes what it says."""
    return options.folder / side / "snakemake.log"


def started_side(options: argparse.Namespace, side: str) -> subprocess.Popen:
    """A Snakemake that measures one side, in a folder of its own."""
    targets = ["results/grid.json", f"results/processes/{options.processes}.done"]
    if options.trial == SLOWER_SOFTMAX:
        targets += ["results/tables/provenance.json"]
    folder, settings = options.folder / side, config(options, side)
    command = [*snakemake_command(folder, settings, options.cores, *options.configfile), "--", *targets]
    with log_of(options, side).open("w") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def config(options: argparse.Namespace, side: str) -> dict:
    """The settings of one side."""
    models, lengths, modes = GRIDS[options.trial]
    grid = {
        "models": options.models or models,
        "context_lengths": options.context_lengths or lengths,
        "modes": options.modes or modes,
    }
    timing = {"processes": options.processes, "warmup_steps": options.warmup_steps, "accuracy": False}
    timing["measured_steps"] = options.measured_steps
    planted = options.trial == SLOWER_SOFTMAX and side == "after"
    trial = {"grid": "trial", "grids": {"trial": [grid]}, "timing": timing, "counters": {"runs": ""}}
    return trial | ({"program": PLANTED} if planted else {})


def rounds(results: Path) -> int:
    """The rounds in which every run was timed."""
    number = 0
    while (results / "processes" / f"{number + 1}.done").exists():
        number += 1
    return number


def nothing_told(tables: Tables) -> str | None:
    """What is wrong where a cell of the same program is told to differ; prints how much the sides scatter."""
    cells = tables["cells"]
    off = (cells["ratio"] - 1).abs()
    inside = cells["ratio_low"].le(1) & cells["ratio_high"].ge(1)
    print(
        f"{len(cells)} cells of {cells['processes_before'].min():.0f} processes a side: ratios"
        f" {cells['ratio'].min():.4f} to {cells['ratio'].max():.4f}, median distance from 1 {off.median():.2%};"
        f" {inside.sum()} intervals hold 1; {cells['p'].lt(0.05).sum()} of the p below 0.05, the smallest"
        f" {cells['p'].min():.2g}, adjusted {cells['p_adjusted'].min():.2g}"
    )
    told = cells.loc[cells["verdict"].isin((SLOWER, FASTER)), "run"]
    return f"told to differ, and are the same: {', '.join(told)}" if len(told) else None


def slower_told(tables: Tables) -> str | None:
    """What is wrong where the planted slowdown is not told, or another kernel is named first."""
    cells, changes = tables["cells"], tables["changes"]
    kernels = changes[changes["level"] == "kernel"]
    for row in kernels.itertuples():
        print(f"{row.change}: {row.ms_before:.3f} -> {row.ms_after:.3f} ms, {row.name[:160]}")
    if (cells["verdict"] != SLOWER).any():
        return "the slowdown was not told: " + ", ".join(cells["verdict"])
    first = kernels.iloc[0]["name"] if len(kernels) else "none"
    return None if NAMED in first else f"the kernel named first is another: {first}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trial", choices=(SAME, SLOWER_SOFTMAX))
    parser.add_argument("folder", type=lambda name: Path(name).resolve(), help="where both sides are measured")
    parser.add_argument("--processes", type=int, default=7)
    parser.add_argument("--warmup-steps", type=int, default=2)
    parser.add_argument("--measured-steps", type=int, default=5)
    parser.add_argument("--models", nargs="+", help="instead of those of 2025; large where it is to be slower")
    parser.add_argument("--context-lengths", nargs="+", type=int)
    parser.add_argument("--modes", nargs="+")
    parser.add_argument("--configfile", nargs="+", default=[], help="further settings of both sides")
    parser.add_argument("--cores", type=int, default=1, help="of either side")
    parser.add_argument("--limit-s", type=float)
    return parser


if __name__ == "__main__":
    main()
