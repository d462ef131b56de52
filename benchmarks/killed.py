"""Kills one process of a run on GPUs at a random moment: `python -m benchmarks.killed FOLDER [--rounds 2]`.

Snakemake measures a run on two GPUs; at a random moment one process gets SIGKILL: Snakemake itself, the job that
measures, its supervisor, the launcher, or a rank. Afterwards, no process, lease or GPU memory of it may remain, and
Snakemake, called again, must finish the run. The exit status is 1 if something remains, or the next run fails.

Nothing else may use the GPUs (those of CUDA_VISIBLE_DEVICES, by number) meanwhile.
"""

import itertools
import json
import os
import random
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.harness import ROOT, print_row, run, snakemake_command
from cs336_model.nvml import nvml
from profile_grid.host.leases.host_locks import FOLDER_VARIABLE, held_gpus

VICTIMS = {  # a part of their command lines
    "snakemake": "-m snakemake",
    "job": "workflow.scripts.measure",
    "supervisor": "supervisor.py",
    "launcher": "cs336_model.program.parallel.launch",
    "rank": "cs336_model.program.benchmark",
}
RUN = "tiny_ctx64_train_step_gpus2_ddp"
RESULTS = [f"results/runs/{RUN}/{stage}.json" for stage in ("timing", "capture")]
GRID = {"models": ["tiny"], "context_lengths": [64], "modes": ["train_step"], "gpus": [2], "parallels": ["ddp"]}
PATIENCE_S, MIN_S, MAX_S = 60, 3.0, 20.0
FREE_BYTES = 64 * 2**20  # so little more than before belongs to the driver


def main(folder: Path, *, rounds: int = 1, seed: int = 11) -> int:
    chance, failures = random.Random(seed), 0
    print_row("victim", "killed after, s", "what happened", "problem", heading=True)
    for number, victim in itertools.product(range(rounds), VICTIMS):
        moment = chance.uniform(MIN_S, MAX_S)
        problem, happened = Trial(folder.resolve() / f"{number}-{victim}").killed(victim, moment)
        failures += bool(problem)
        print_row(victim, moment, happened, problem or "none: nothing remained, the next run succeeded")
    print(f"{failures} of {rounds * len(VICTIMS)} failed")
    return int(failures > 0)


class Trial:
    """One folder in which a run is measured, with separate leases."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)  # fails if it exists: its results would not be measured again
        self.command = snakemake_command(folder, {"grid": "killed", "grids": {"killed": [GRID]}}, 2)
        os.environ[FOLDER_VARIABLE] = str(folder / "leases")
        self.folder, self.log = folder, (folder / "snakemake.log").open("w")
        self.memory_before, self.seen = memory_used(), set[psutil.Process]()

    def killed(self, victim: str, moment: float) -> tuple[str, str]:
        """The problem or "", and the killed process in words."""
        snakemake, process = self.started("--", *RESULTS), None
        kill_s = time.monotonic() + moment
        while snakemake.poll() is None and (process is None or time.monotonic() < kill_s):
            self.note_processes(snakemake)
            newest_first = sorted(self.seen, key=lambda seen: -seen.pid)
            process = next((seen for seen in newest_first if VICTIMS[victim] in command_line(seen)), None)
            time.sleep(0.02)
        if process:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        killed_s = time.monotonic()
        while remains := self.remains(snakemake):
            if time.monotonic() - killed_s > PATIENCE_S:
                return f"{remains} is left after {PATIENCE_S} s", "killed"
            time.sleep(0.02)
        happened = "killed" if process else "over before"
        happened += f", status {snakemake.wait()}, gone after {time.monotonic() - killed_s:.1f} s"
        self.started("--unlock").wait()
        if status := self.started("--", *RESULTS).wait():
            return f"the next Snakemake ended with status {status}; see {self.log.name}", happened
        statuses = [json.loads((self.folder / path).read_text())["status"] for path in RESULTS]
        return "" if statuses == ["complete"] * 2 else f"results are {statuses}", happened

    def started(self, *options: str) -> subprocess.Popen:
        return subprocess.Popen([*self.command, *options], cwd=ROOT, stdout=self.log, stderr=self.log)

    def note_processes(self, snakemake: subprocess.Popen) -> None:
        """Records the processes below this one; psutil distinguishes later ones with the same number."""
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(snakemake.pid)
            self.seen |= {process, *process.children(recursive=True)}

    def remains(self, snakemake: subprocess.Popen) -> str:
        """The remains of a killed run in words, or ""."""
        if snakemake.poll() is None:
            self.note_processes(snakemake)
            return f"Snakemake, process {snakemake.pid},"
        for process in self.seen:
            with suppress(psutil.NoSuchProcess):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    return f"process {process.pid}, {command_line(process)[:80]},"
        if gpus := held_gpus():
            return f"the lease of {', '.join(gpus)}"
        added = [now - before for now, before in zip(memory_used(), self.memory_before, strict=True)]
        return f"memory, {added} bytes," if max(added, default=0) > FREE_BYTES else ""


def command_line(process: psutil.Process) -> str:
    """The command line of a process; "" if it is gone."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def memory_used() -> list[int]:
    """Bytes in use on every GPU; [] without a GPU."""
    if (pynvml := nvml()) is None:
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").replace(",", " ").split()
    numbers = [int(text) for text in visible] or range(pynvml.nvmlDeviceGetCount())
    return [pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(number)).used for number in numbers]


if __name__ == "__main__":
    run(main)
