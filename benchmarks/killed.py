"""A run on GPUs of which a process is killed at any moment: `python -m benchmarks.killed FOLDER [--rounds 2]`.

Snakemake measures a run on two GPUs; at a moment drawn by chance one process gets SIGKILL: Snakemake itself, the job
that measures, its supervisor, the launcher, a rank. Then nothing of it may be left, no process, no lease, no memory on
a GPU; and Snakemake, called again, ends the run. Status 1 where something is left, or the next one does not run.

Nothing else may use the GPUs (those of CUDA_VISIBLE_DEVICES, where that has numbers) meanwhile.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.harness import ROOT, print_row, run, snakemake_command
from cs336_model.nvml import nvml
from profile_grid.host.leases.host_locks import FOLDER_VARIABLE, held_gpus
from profile_grid.host.processes.supervisor import descendants

VICTIMS = {  # what is in their command lines
    "snakemake": "-m snakemake",
    "job": "workflow.scripts.measure",
    "supervisor": "supervisor.py",
    "launcher": "cs336_model.program.parallel.launch",
    "rank": "cs336_model.program.benchmark",
}
RUN = "tiny_ctx64_train_step_gpus2_ddp"
RESULTS = [f"results/runs/{RUN}/{stage}.json" for stage in ("timing", "capture")]
GRID = {"models": ["tiny"], "context_lengths": [64], "modes": ["train_step"], "gpus": [2], "parallels": ["ddp"]}
PATIENCE_S, LEAST_S, MOST_S = 60, 3.0, 20.0
FREE_BYTES = 64 * 2**20  # so little more than before is the driver's own


def main(folder: Path, *, rounds: int = 1, seed: int = 11) -> int:
    chance, wrong = random.Random(seed), 0
    print_row("victim", "killed after, s", "what happened", "what is wrong", heading=True)
    for number, victim in itertools.product(range(rounds), VICTIMS):
        moment = chance.uniform(LEAST_S, MOST_S)
        complaint, happened = Trial(folder.resolve() / f"{number}-{victim}").killed(victim, moment)
        wrong += bool(complaint)
        print_row(victim, moment, happened, complaint or "nothing: nothing is left, the next one ran")
    print(f"{wrong} of {rounds * len(VICTIMS)} wrong")
    return int(wrong > 0)


class Trial:
    """One folder in which a run is measured; its leases are its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)  # fails where there is one: its results would not be measured again
        self.command = snakemake_command(folder, {"grid": "killed", "grids": {"killed": [GRID]}}, 2)
        os.environ[FOLDER_VARIABLE] = str(folder / "leases")
        self.folder, self.log = folder, (folder / "snakemake.log").open("w")
        self.before, self.seen = memory_used(), {}

    def killed(self, victim: str, moment: float) -> tuple[str, str]:
        """What is wrong afterwards, or ""; and what happened."""
        first, pid = self.started("--", *RESULTS), None
        when = time.monotonic() + moment
        while first.poll() is None and (pid is None or time.monotonic() < when):
            self.look(first.pid)
            pid = next((one for one in sorted(self.seen, reverse=True) if VICTIMS[victim] in command_line(one)), None)
            time.sleep(0.02)
        if pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended = time.monotonic()
        while left := self.left(first):
            if time.monotonic() - ended > PATIENCE_S:
                return f"{left} is left after {PATIENCE_S} s", "killed"
            time.sleep(0.02)
        happened = "killed" if pid else "over before"
        happened += f", status {first.wait()}, gone after {time.monotonic() - ended:.1f} s"
        self.started("--unlock").wait()
        if status := self.started("--", *RESULTS).wait():
            return f"the next Snakemake ended with status {status}; see {self.log.name}", happened
        states = [json.loads((self.folder / path).read_text())["status"] for path in RESULTS]
        return "" if states == ["complete"] * 2 else f"results are {states}", happened

    def started(self, *further: str) -> subprocess.Popen:
        return subprocess.Popen([*self.command, *further], cwd=ROOT, stdout=self.log, stderr=self.log)

    def look(self, pid: int) -> None:
        """Notes the processes below this one, by number and start."""
        self.seen |= {one: start for one in (pid, *descendants(pid)) if (start := start_of(one)) is not None}

    def left(self, first: subprocess.Popen) -> str:
        """What of a killed run is there, or ""."""
        if first.poll() is None:
            self.look(first.pid)
            return f"Snakemake, process {first.pid},"
        for pid in [one for one, start in self.seen.items() if start_of(one) == start]:
            return f"process {pid}, {command_line(pid)[:80]},"
        if held := held_gpus():
            return f"the lease of {', '.join(held)}"
        more = [now - then for now, then in zip(memory_used(), self.before, strict=True)]
        return f"memory, {more} bytes," if max(more, default=0) > FREE_BYTES else ""


def start_of(pid: int) -> int | None:
    """When a process started, in clock ticks since boot (proc(5), field 22); None where it is gone, or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def memory_used() -> list[int]:
    """Bytes in use on every GPU; [] where there is none."""
    if (pynvml := nvml()) is None:
        return []
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "").replace(",", " ").split()
    numbers = [int(text) for text in chosen] or range(pynvml.nvmlDeviceGetCount())
    return [pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(one)).used for one in numbers]


if __name__ == "__main__":
    run(main)
