"""The stage without a profiler: the time of every step."""

from profile_grid.study.stage import COUNT, PROCESSES, Setting, Stage, steps

TIMING = Stage(
    name="timing",
    meaning="the process without a profiler",
    table_names=("timings", "steps", "warmup_steps", "accuracy", "rank_times", "losses"),
    sources=PROCESSES,
    settings={
        **steps(warmup=5, measured=10),
        "processes": Setting(
            {"description": "Number of processes that time each run; every round times all runs once.", **COUNT},
            default=1,
            of_study=True,
        ),
        "accuracy": Setting(
            {
                "description": "Whether the first step is compared with one in fp64, after the times are measured; with"
                " several processes, only in the first.",
                "type": "boolean",
            },
            default=True,
        ),
        "quiet_host": Setting(
            {
                "description": "Whether no other GPU of the host may be measured at the same time, which can slow"
                " down launch-bound passes.",
                "type": "boolean",
            },
            default=False,
        ),
    },
)
