"""The stage that records every allocation."""

from profile_grid.study.stage import PROCESS_SOURCES, Stage, TablesOfARun, step_settings

MEMORY = Stage(
    name="memory",
    meaning="the process whose allocations are recorded",
    files=("memory_history.json.gz",),
    optional_files=("memory_snapshot.pickle",),
    sources=PROCESS_SOURCES,
    disk_bytes=50_000,
    # H200: three training steps of 2.7B (32 layers) at context 128 leave 4.7 MB of snapshot, and less of history
    disk_bytes_per_layer_and_step=80_000,
    settings=step_settings(warmup=1, measured=1),
    tables_of_a_run=TablesOfARun(
        names=(
            "memory_phases",
            "memory_moments",
            "memory_activations",
            "memory_largest",
            "memory_timeline",
            "memory_totals",
            "memory_failed",
            "memory_blocks",
            "module_dtypes",
        ),
        status_file="memory_status.json",
    ),
    of_every_run=False,
)
