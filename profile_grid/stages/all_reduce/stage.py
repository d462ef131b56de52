"""The stage of all-reduce alone, between the GPUs of a run."""

from profile_grid.study.stage import COUNT, PROCESSES, Setting, Stage, steps

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
        **steps(warmup=5, measured=20),
    },
    of_every_run=False,
    of_several_gpus=True,
)
