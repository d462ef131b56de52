"""The stage without a profiler: the time of every step."""

from profile_grid.study.stage import COUNT_SCHEMA, PROCESS_SOURCES, Setting, Stage, step_settings

TIMING = Stage(
    name="timing",
    meaning="the process without a profiler",
    table_names=("timings", "steps", "warmup_steps", "accuracy", "rank_times", "losses"),
    sources=PROCESS_SOURCES,
    settings={
        **step_settings(warmup=5, measured=10),
        "processes": Setting(
            {"description": "Number of processes that time each run; every round times all runs once.", **COUNT_SCHEMA},
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
