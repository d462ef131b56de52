"""The stages of a run: what is measured of it, each by a process of its own, declared once. Imports nothing heavy.

Rules, progress, estimates, merge, cost, verify, the words for what is missing and the schema follow from what stands
here. A stage writes results/runs/RUN/NAME.json (profile_grid.measuring.results) and the files it names.
"""

from __future__ import annotations

from profile_grid.stages.operator.stage import OPERATOR
from profile_grid.study.stage import COUNT, PROCESSES, WARMUP, Setting, Stage, TablesOfARun

OWN_RULES = ("kernel_classes", "diagnosis_rules")  # the keys of config.yaml that hold rules of one's own
SHOWN = "shown"  # as a pattern of runs: the one whose step the page shows
NOT_ASKED = "not_asked"  # the status of a stage that a run was not asked for
UNSUPPORTED = "unsupported"  # that of one which this machine cannot measure, or PyTorch refuses
TIMING = Stage(
    name="timing",
    meaning="the process without a profiler",
    runs="profile_grid.measuring.timing:timed",
    tables="profile_grid.merging.timings:timing_tables",
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
CAPTURE = Stage(
    name="capture",
    meaning="the process under the profiler",
    runs="profile_grid.measuring.capture:captured",
    files=("capture.sqlite",),
    may_leave=("capture.nsys-rep",),
    attempts=2,
    # nsys, H200: 3 training steps of 2.7B (32 layers) leave 3.8 MB of SQLite, and left about as much of report; of the
    # report, which holds the two steps before them now, 5/3 of that is reckoned, not measured
    disk_bytes=500_000,
    disk_bytes_per_layer_and_step=105_000,
    sources=(
        *PROCESSES,
        "profile_grid/measuring/capture_identity.py",
        "profile_grid/measuring/hidden_host.py",
        "profile_grid/measuring/nsys_capture.py",
        "kernel_tables/recording/nsys_profile.py",
    ),
    settings={
        # H200, 142 runs: the second step already lasts as long as the later ones (median ratio 1.000)
        "warmup_steps": Setting(WARMUP, default=2, of_program=True),
        "measured_steps": Setting(COUNT, default=3, of_program=True),
        "backend": Setting({"enum": ["auto", "nsys", "torch"]}, default="auto"),
        "nsys_options": Setting(
            {
                "description": "Appended to `nsys profile`, long options only; those that move the report are refused.",
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
        names=("kernels", "phases", "ranges", "findings", "rank_phases", "rank_steps", "collectives"),
        status_file="status.json",
        made_by="profile_grid.merging.capture_tables:tables_of_capture",
        empty_by="profile_grid.merging.capture_tables:empty_tables",
        texts=("reports/kernel_summary.csv", "reports/nvtx_summary.csv", "reports/api_summary.csv"),
        texts_by="profile_grid.merging.nsys_reports:reports_of_capture",
        sources=("kernel_tables/classes/*.toml",),
        own_rules=OWN_RULES,
    ),
)
MEMORY = Stage(
    name="memory",
    meaning="the process whose allocations are recorded",
    runs="profile_grid.measuring.memory:recorded",
    files=("memory_history.json.gz",),
    may_leave=("memory_snapshot.pickle",),
    sources=PROCESSES,
    disk_bytes=50_000,
    # H200: three training steps of 2.7B (32 layers) at context 128 leave 4.7 MB of snapshot, and less of history
    disk_bytes_per_layer_and_step=80_000,
    settings={
        "warmup_steps": Setting(WARMUP, default=1, of_program=True),
        "measured_steps": Setting(COUNT, default=1, of_program=True),
    },
    tables_of_a_run=TablesOfARun(
        names=(
            "memory_phases",
            "memory_activations",
            "memory_largest",
            "memory_timeline",
            "memory_totals",
            "memory_failed",
        ),
        status_file="memory_status.json",
        made_by="profile_grid.merging.memory.of_run:tables_of_memory",
        empty_by="profile_grid.merging.memory.of_run:empty_tables",
    ),
    of_every_run=False,
)
COUNTERS = Stage(
    name="counters",
    meaning="the process whose kernels are counted under Nsight Compute",
    runs="profile_grid.measuring.counters:counted",
    files=("ncu.csv",),
    disk_bytes=200_000,
    lasts_s=lambda told: 49.0,  # H200: 48 to 50 s of four training steps; forward 20, with backward 41
    sources=(
        *PROCESSES,
        "cs336_model/program/roofs.py",
        "kernel_tables/counters/metrics.py",
        "kernel_tables/counters/reading.py",
        "kernel_tables/recording/ncu_profile.py",
        "profile_grid/measuring/counter_problems.py",
    ),
    settings={
        "runs": Setting(
            {
                "description": "Runs whose kernels are counted besides those of products with `stages: [counters]`: a"
                f" pattern of their names, such as small_ctx512_*, or `{SHOWN}`, as without this key: the run whose"
                " step the page shows, or would of those on one GPU; empty for none.",
                "type": "string",
            },
            default=None,  # `shown` where the grid has such a run
            of_study=True,
        ),
        "layers": Setting(
            {
                "description": "Layers of a model (its size num_layers) that are counted at most: all launch the same"
                " kernels. More where they differ.",
                **COUNT,
            },
            default=2,
        ),
        "warmup_steps": Setting(WARMUP, default=1, of_program=True),
        "measured_steps": Setting(COUNT, default=1, of_program=True),
    },
    tables_of_a_run=TablesOfARun(
        names=("counters", "counter_ranges", "roofs", "counter_findings"),
        status_file="counters_status.json",
        made_by="profile_grid.merging.counters.of_run:tables_of_counters",
        empty_by="profile_grid.merging.counters.of_run:empty_tables",
        reads=("capture",),
        sources=("kernel_tables/classes/*.toml",),
    ),
    of_every_run=False,
    only_with_gpu=True,
)

ENERGY = Stage(
    name="energy",
    meaning="the process whose energy is counted",
    runs="profile_grid.measuring.energy:counted",
    tables="profile_grid.merging.energy:energy_tables",
    table_names=("energy", "energy_windows"),
    sources=PROCESSES,
    lasts_s=lambda told: (told["windows"] + 2) * told["window_s"],  # one idle window before them, and one after
    settings={
        "warmup_steps": Setting(WARMUP, default=5, of_program=True),
        "measured_steps": Setting(COUNT, default=3, of_program=True),
        "windows": Setting(
            {"description": "Windows in which the model steps.", "type": "integer", "minimum": 3, "maximum": 1000},
            default=3,
        ),
        "window_s": Setting(
            {
                "description": "Seconds of a window, at least. NVML's counter ticks every 0.1 s: windows of 1 s scatter"
                " by 5 %, those of 5 s by 1 %.",
                "type": "number",
                "minimum": 5,
                "maximum": 600,
            },
            default=5,
        ),
    },
    of_every_run=False,
)

COLD_START = Stage(
    name="cold_start",
    meaning="the process whose very first step is captured",
    runs="profile_grid.measuring.cold_start:captured_cold",
    files=("cold_start.sqlite",),
    attempts=CAPTURE.attempts,
    sources=(*CAPTURE.sources, "profile_grid/measuring/capture.py"),
    disk_bytes=CAPTURE.disk_bytes,
    disk_bytes_per_layer_and_step=CAPTURE.disk_bytes_per_layer_and_step,
    settings=CAPTURE.settings | {"warmup_steps": Setting({"enum": [0]}, default=0, of_program=True)},
    tables_of_a_run=TablesOfARun(
        names=("first_step",),
        status_file="cold_start_status.json",
        made_by="profile_grid.merging.cold_start:tables_of_cold_start",
        empty_by="profile_grid.merging.cold_start:empty_tables",
    ),
    of_every_run=False,
)

ALL_REDUCE = Stage(
    name="all_reduce",
    meaning="all-reduce alone between the GPUs of a run",
    runs="profile_grid.measuring.all_reduce:all_reduced",
    tables="profile_grid.merging.all_reduce:all_reduce_tables",
    table_names=("all_reduce",),
    sources=(*PROCESSES, "cs336_model/program/parallel/all_reduce.py"),
    settings={
        "megabytes": Setting(
            {"description": "Sizes that are reduced, of 10^6 bytes.", "type": "array", "minItems": 1, "items": COUNT},
            default=(1, 10, 100, 1000),
        ),
        "warmup_steps": Setting(WARMUP, default=5, of_program=True),
        "measured_steps": Setting(COUNT, default=20, of_program=True),
    },
    of_every_run=False,
    of_several_gpus=True,
)

HOST_TRACE = Stage(
    name="host_trace",
    meaning="the process whose host is traced: calls of the OS runtime, and Python stacks",
    runs="profile_grid.measuring.host_trace:host_traced",
    files=("host_trace.sqlite",),
    attempts=CAPTURE.attempts,
    sources=(*CAPTURE.sources, "profile_grid/measuring/capture.py", "kernel_tables/reading/python_samples.py"),
    disk_bytes=CAPTURE.disk_bytes,
    disk_bytes_per_layer_and_step=CAPTURE.disk_bytes_per_layer_and_step,
    settings=CAPTURE.settings
    | {
        "measured_steps": Setting(COUNT, default=10, of_program=True),
        "backend": Setting({"enum": ["nsys"]}, default="nsys"),
        "sources": Setting(
            {
                "description": "What is recorded of the host besides CUDA calls: calls of the OS runtime of 1 µs and"
                " longer, and a thousand Python stacks a second.",
                "type": "array",
                "items": {"enum": ["osrt", "python"]},
                "minItems": 1,
                "uniqueItems": True,
            },
            default=("osrt", "python"),
        ),
    },
    tables_of_a_run=TablesOfARun(
        names=("host_time",),
        status_file="host_trace_status.json",
        made_by="profile_grid.merging.host_trace:tables_of_host_trace",
        empty_by="profile_grid.merging.host_trace:empty_tables",
    ),
    of_every_run=False,
    only_with_gpu=True,
)

STAGES = (TIMING, CAPTURE, MEMORY, ENERGY, COUNTERS, COLD_START, ALL_REDUCE, HOST_TRACE, OPERATOR)
BY_NAME = {stage.name: stage for stage in STAGES}
ON_REQUEST = tuple(stage.name for stage in STAGES if not stage.of_every_run)
