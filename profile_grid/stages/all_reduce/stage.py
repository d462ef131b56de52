"""The stage of all-reduce alone, between the GPUs of a run."""

from profile_grid.study.stage import COUNT, PROCESSES, WARMUP, Setting, Stage

ALL_REDUCE = Stage(
    name="all_reduce",
    meaning="all-reduce alone between the GPUs of a run",
    table_names=("all_reduce",),
    sources=(*PROCESSES, "cs336_model/program/parallel/all_reduce.py"),
    settings={
        "megabytes": Setting(
            {"description": "Sizes to reduce, in 10^6 bytes.", "type": "array", "minItems": 1, "items": COUNT},
            default=(1, 10, 100, 1000),
        ),
        "warmup_steps": Setting(WARMUP, default=5, of_program=True),
        "measured_steps": Setting(COUNT, default=20, of_program=True),
    },
    of_every_run=False,
    of_several_gpus=True,
)
