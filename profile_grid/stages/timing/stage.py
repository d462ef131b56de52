"""The stage without a profiler: every single time of every step."""

from __future__ import annotations

from profile_grid.study.stage import COUNT, PROCESSES, WARMUP, Setting, Stage

TIMING = Stage(
    name="timing",
    meaning="the process without a profiler",
    table_names=("timings", "steps", "warmup_steps", "accuracy", "rank_times", "losses"),
    sources=PROCESSES,
    settings={
        "warmup_steps": Setting(WARMUP, default=5, of_program=True),
        "measured_steps": Setting(COUNT, default=10, of_program=True),
        "processes": Setting(
            {"description": "Processes that time every run, in rounds over the runs.", **COUNT},
            default=1,
            of_study=True,
        ),
        "accuracy": Setting(
            {
                "description": "Whether the first step is held against one in fp64 once the times are taken; of several"
                " processes the first alone does that.",
                "type": "boolean",
            },
            default=True,
        ),
        "quiet_host": Setting(
            {
                "description": "Whether no other GPU of the host is measured on meanwhile, which can make launch-bound"
                " passes slower.",
                "type": "boolean",
            },
            default=False,
        ),
    },
)
