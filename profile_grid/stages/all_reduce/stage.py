"""The stage of all-reduce alone, between the GPUs of a run."""

from profile_grid.study.stage import COUNT_SCHEMA, PROCESS_SOURCES, Setting, Stage, step_settings

ALL_REDUCE = Stage(
    name="all_reduce",
    meaning="all-reduce alone between the GPUs of a run",
    table_names=("all_reduce",),
    sources=(*PROCESS_SOURCES, "cs336_model/program/parallel/all_reduce.py"),
    settings={
        "megabytes": Setting(
            {"description": "Sizes to reduce, in 10^6 bytes.", "type": "array", "minItems": 1, "items": COUNT_SCHEMA},
            default=(1, 10, 100, 1000),
        ),
        **step_settings(warmup=5, measured=20),
    },
    of_every_run=False,
    of_several_gpus=True,
)
