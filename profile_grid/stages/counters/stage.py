"""The stage that counts what kernels do, under Nsight Compute."""

from profile_grid.study.stage import (
    COUNT_SCHEMA,
    PROCESS_SOURCES,
    SHOWN_PATTERN,
    Setting,
    Stage,
    TablesOfARun,
    step_settings,
)

COUNTERS = Stage(
    name="counters",
    meaning="the process whose kernels are counted under Nsight Compute",
    files=("ncu.csv",),
    disk_bytes=200_000,
    # H200: 48 to 50 s for each of four training steps; 20 s for a forward pass, 41 s with the backward pass
    extra_seconds=lambda settings: 49.0,
    sources=(
        *PROCESS_SOURCES,
        "cs336_model/program/operator/bench.py",
        "cs336_model/program/roofs.py",
        "kernel_tables/counters/metrics.py",
        "kernel_tables/counters/reading.py",
        "kernel_recorder/ncu_profile.py",
    ),
    settings={
        "runs": Setting(
            {
                "description": "Runs whose kernels are counted, in addition to products with `stages: [counters]`: a"
                f" pattern of names, such as small_ctx512_*; empty for none; or `{SHOWN_PATTERN}`, the default: the run"
                " whose step the page shows or, if that uses several GPUs, a run on one GPU.",
                "type": "string",
            },
            default=None,  # `shown` if the grid has such a run
            of_study=True,
        ),
        "layers": Setting(
            {
                "description": "Maximum number of layers (size num_layers) of a counted model: usually all layers"
                " launch the same kernels. Use more if they differ.",
                **COUNT_SCHEMA,
            },
            default=2,
        ),
        **step_settings(warmup=1, measured=1),
    },
    tables_of_a_run=TablesOfARun(
        names=("counters", "counter_ranges", "roofs", "counter_findings"),
        status_file="counters_status.json",
        reads=("capture",),
        sources=("kernel_tables/kernel_classes/*.toml",),
    ),
    of_every_run=False,
)
