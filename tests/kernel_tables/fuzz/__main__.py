"""Damages captures and tries every command on each: `python -m tests.kernel_tables.fuzz [--files N] [--seed S]`.

Prints the trials with a fault, and the counts by outcome. A trial is made again by its number: `--only NUMBER`.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.kernel_tables.fuzz.captures import write_captures
from tests.kernel_tables.fuzz.trial import TIME_LIMIT_S

WAIT_LIMIT_S = 300  # on a busy machine; of the processor a trial may have trial.TIME_LIMIT_S
REPOSITORY = Path(__file__).parents[3]


class Worker:
    """A process that tries captures one after the other; it is started again where one ended or hung it."""

    def __init__(self, folder: Path, captures: list[Path]):
        folder.mkdir()
        self._command = [sys.executable, "-m", "tests.kernel_tables.fuzz.trial", str(folder), *map(str, captures)]
        self._process: subprocess.Popen | None = None

    def __call__(self, seed: int, number: int) -> dict:
        """The trial as trial.Trial writes it; one of a process that ended or hung has no more than its number."""
        if self._process is None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, cwd=REPOSITORY, text=True)
        self._process.stdin.write(f"{seed} {number}\n")
        self._process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            answered = selector.select(WAIT_LIMIT_S)
        answer = self._process.stdout.readline() if answered else ""
        if answer:
            return json.loads(answer)
        why = _why_ended(self._process.wait()) if answered else f"hung for {WAIT_LIMIT_S} s"
        self.close()
        return {
            "number": number, "faults": [why], "outcome": "killed", "damages": [], "objection": None,
            "seconds": TIME_LIMIT_S, "more_memory_mib": 0,
        }  # fmt: skip

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _why_ended(status: int) -> str:
    return f"took more than {TIME_LIMIT_S} s" if status == -signal.SIGPROF else f"ended with status {status}"


def trials(seed: int, numbers: Iterable[int], processes: int = 2) -> Iterator[dict]:
    """What came of each trial, in no promised order of work but in the order of NUMBERS."""
    with tempfile.TemporaryDirectory(prefix="kernel_tables_fuzz_") as scratch:
        captures = write_captures(Path(scratch) / "whole")
        workers = [Worker(Path(scratch) / str(number), captures) for number in range(processes)]
        idle: SimpleQueue[Worker] = SimpleQueue()
        for worker in workers:
            idle.put(worker)

        def tried(number: int) -> dict:
            worker = idle.get()
            try:
                return worker(seed, number)
            finally:
                idle.put(worker)

        try:
            with ThreadPoolExecutor(processes) as pool:
                yield from pool.map(tried, numbers)
        finally:
            for worker in workers:
                worker.close()


def counts(done: Iterable[dict]) -> Counter:
    """How many trials had each outcome: what SQLite or the reference says, and what the commands did."""
    return Counter(
        (
            (trial["objection"] or "nothing against it").partition(":")[0],
            trial["outcome"],
            "fault" if trial["faults"] else "as it should be",
        )
        for trial in done
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, metavar="NUMBER", help="go on from this trial")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this trial alone")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    numbers = range(options.first, options.files) if options.only is None else [options.only]
    done = []
    for trial in trials(options.seed, numbers, options.processes):
        done.append(trial)
        if trial["faults"]:
            print(json.dumps(trial, indent=1), flush=True)
    for (against, outcome, held), count in sorted(counts(done).items()):
        print(f"{count:6}  {against:26} {outcome:10} {held}")
    slowest, largest = (max(done, key=lambda trial: trial[figure]) for figure in ("seconds", "more_memory_mib"))
    print(f"the slowest, {slowest['number']}, took {slowest['seconds']:.1f} s of the processor;", end=" ")
    print(f"{largest['number']} took the most memory, {largest['more_memory_mib']} MiB beyond all before it")
    return 1 if any(trial["faults"] for trial in done) else 0


if __name__ == "__main__":
    sys.exit(main())
