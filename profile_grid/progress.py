"""One line per measurement on standard error: which of how many, what, how long it took, what remains."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TOTAL_VARIABLE = "PROFILE_GRID_MEASUREMENTS"
STARTED_VARIABLE = "PROFILE_GRID_STARTED"


@contextmanager
def announced(stage: str, program: dict, output: Path) -> Iterator[None]:
    """Says when a measurement begins and ends; the total comes from the Snakefile through the environment."""
    what = f"{stage:7} {program['model']} ctx {program['context_length']} {program['mode']}"
    done, total = _done(output), os.environ.get(TOTAL_VARIABLE, "?")
    started = time.time()
    _say(f"[{done + 1}/{total}] {what} ...")
    yield
    _say(f"[{done + 1}/{total}] {what}: {time.time() - started:.1f} s{_remaining(output, total)}")


def say_notes(notes: list[str]) -> None:
    """Says, below the line of the measurement that began, what is not as it should be."""
    for note in notes:
        _say(f"    {note}")


def _done(output: Path) -> int:
    """Measurements that are finished below results/runs, whatever grid they belong to now."""
    runs = output.parent.parent
    return sum(1 for name in ("timing.json", "capture.json") for _ in runs.glob(f"*/{name}"))


def _remaining(output: Path, total: str) -> str:
    """`; about 4 min remain`, from the pace since this Snakemake began, once two measurements tell it."""
    since = float(os.environ.get(STARTED_VARIABLE, "nan"))
    runs = output.parent.parent
    ours = [p for name in ("timing.json", "capture.json") for p in runs.glob(f"*/{name}") if p.stat().st_mtime >= since]
    finished = len(ours) + 1
    left = int(total) - _done(output) - 1 if total.isdigit() else 0
    if finished < 2 or left <= 0:
        return ""
    minutes = (time.time() - since) / finished * left / 60
    return f"; {left} to go, about {minutes:.0f} min" if minutes >= 1 else f"; {left} to go, under a minute"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
