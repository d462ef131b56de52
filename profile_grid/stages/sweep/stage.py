"""Attention alone, every context length in one process: of a row of the attention sweep, not of a run."""

from __future__ import annotations

from profile_grid.study.stage import COUNT, PROCESSES, WARMUP, Setting, Stage

SWEEP = Stage(
    name="sweep",
    meaning="attention alone, every context length in one process",
    sources=(*PROCESSES, "profile_grid/measuring/sweep.py"),
    settings={
        "warmup_passes": Setting(WARMUP, default=5, of_program=True),
        "measured_passes": Setting(COUNT, default=100, of_program=True),
    },
)
