"""The stage under a profiler: Nsight Systems, or PyTorch's."""

from profile_grid.study.stage import PROCESS_SOURCES, RULE_KEYS, Setting, Stage, TablesOfARun, step_settings

CAPTURE = Stage(
    name="capture",
    meaning="the process under the profiler",
    files=("capture.sqlite",),
    optional_files=("capture.nsys-rep",),
    attempts=2,
    # with nsys on an H200, for 3 training steps of the model 2.7B (32 layers): measured 3.8 MB of SQLite, estimated 5/3
    # of that for the report, which also has the two steps before them
    disk_bytes=500_000,
    disk_bytes_per_layer_and_step=105_000,
    sources=(
        *PROCESS_SOURCES,
        "profile_grid/results/capture_identity.py",
        "profile_grid/stages/capture/nsys_sandbox.py",
        "profile_grid/stages/capture/nsys_capture.py",
        "kernel_recorder/nsys_profile.py",
    ),
    settings={
        # H200, 142 runs: the second step already lasts as long as the later ones (median ratio 1.000)
        **step_settings(warmup=2, measured=3),
        "backend": Setting(
            {"description": "Profiler; auto is nsys if it and a GPU are present.", "enum": ["auto", "nsys", "torch"]},
            default="auto",
        ),
        "nsys_options": Setting(
            {
                "description": "Options of `nsys profile`, in long form; those that move the report are refused.",
                "type": "array",
                "items": {
                    "type": "string",
                    "pattern": "^--(?!output|export|force-overwrite|command-file)[a-z][a-z-]*(=[A-Za-z0-9_,.:-]+)?$",
                },
            },
            default=(),
        ),
    },
    tables_of_a_run=TablesOfARun(
        names=("kernels", "phases", "ranges", "findings", "rank_phases", "rank_steps", "collectives", "layer_gathers"),
        status_file="status.json",
        texts=("reports/kernel_summary.csv", "reports/nvtx_summary.csv", "reports/api_summary.csv"),
        sources=("kernel_tables/kernel_classes/*.toml",),
        rule_keys=RULE_KEYS,
    ),
)
