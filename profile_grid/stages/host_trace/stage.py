"""The stage that traces the host: its calls and its Python stacks."""

from profile_grid.stages.capture.stage import CAPTURE
from profile_grid.study.stage import COUNT_SCHEMA, Setting, Stage, TablesOfARun

HOST_TRACE = Stage(
    name="host_trace",
    meaning="the process in which the host is traced: calls of the OS runtime, and Python stacks",
    files=("host_trace.sqlite",),
    attempts=CAPTURE.attempts,
    sources=(*CAPTURE.sources, CAPTURE.module_path("measure"), "kernel_tables/reading/python_samples.py"),
    disk_bytes=CAPTURE.disk_bytes,
    disk_bytes_per_layer_and_step=CAPTURE.disk_bytes_per_layer_and_step,
    settings=CAPTURE.settings
    | {
        "measured_steps": Setting(COUNT_SCHEMA, default=10, of_program=True),
        "backend": Setting({"description": "The profiler.", "enum": ["nsys"]}, default="nsys"),
        "sources": Setting(
            {
                "description": "What is recorded in addition to CUDA calls: `osrt` for operating system calls of"
                " 1 µs or longer, `python` for a thousand Python stacks per second.",
                "type": "array",
                "items": {"enum": ["osrt", "python"]},
                "minItems": 1,
                "uniqueItems": True,
            },
            default=("osrt", "python"),
        ),
    },
    tables_of_a_run=TablesOfARun(names=("host_time",), status_file="host_trace_status.json"),
    of_every_run=False,
    only_with_gpu=True,
)
