"""What the two processes of one run leave behind, as records that a test changes where it looks."""

import json

import pandas as pd
import pyarrow as pa

from profile_grid.results.results import FORMAT

MACHINE = {
    "device": "cpu", "device_name": "Some CPU", "gpu_uuid_sha256": None, "driver": None, "cuda": None,
    "torch": "2.11.0", "python": "3.12.3", "cpu_name": "Some CPU", "cores": 2, "threads": 2,
    "sm_clock_mhz": None, "throttle_reasons": None,
    "other_processes": None,
}  # fmt: skip
LOADED = {
    "modules": {"a": {"root": "elsewhere", "path": "a.py", "digest": "00"}},
    "namespaces": [], "by_path": [], "not_found": [], "others": [],
}  # fmt: skip
ENVIRONMENT = {"values": {}, "salt": None, "digests": {}, "planners_python": True, "gpus": []}
MEMORY = {"peak_allocated_bytes": None, "peak_reserved_bytes": None, "device_total_bytes": None}
PROGRAM = {
    "status": "complete", "spec": {"run": "a", "warmup_steps": 1, "measured_steps": 2}, "out_of_memory": None,
    "reason": None, "compilation": None, "accuracy": None,
    "step_seconds": [0.01, 0.02], "phase_seconds": {"forward": [0.01, 0.02], "loss": []}, "losses": [4.0],
    "warmup_seconds": [0.03], "warmup_phase_seconds": {"forward": [0.03], "loss": []},
    "memory": MEMORY, "parameters": 10, "flops": None, "machine": MACHINE, "cost_seconds": {"import": 1.0},
    "ran_unix_s": [1.0, 2.0], "loaded": LOADED, "loaded_distributions": {},
}  # fmt: skip
TIMING = {
    "format": FORMAT, "status": "complete", "reason": None, "reason_code": None, "facts": {},
    "files": {}, "environment": ENVIRONMENT, "specification": {"program": {}, "environment": []},
    "sources": "00", "program": PROGRAM,
    "seconds": {"all": 2.0, "leased": 1.5}, "waited_s": 0, "neighbours": 0,
    "notes": [], "started_utc": "2026-01-02T03:04:05Z",
    "git": {"git_commit": None, "git_clean": None},
}  # fmt: skip
CAPTURE = TIMING | {
    "facts": {"backend": "torch", "nsys": None, "host_hidden": None, "attempts": 1},
    "files": {"capture.sqlite": {"sha256": "00", "bytes": 10}},
}  # fmt: skip


def changed(record, **changes):
    """A copy of a record with other values below it: `program__machine__driver="580.82"`."""
    copy = json.loads(json.dumps(record))
    for name, value in changes.items():
        *above, last = name.split("__")
        target = copy
        for key in above:
            target = target[key]
        target[last] = value
    return copy


def as_written(table: pd.DataFrame) -> dict[str, pa.DataType]:
    """The type of every column in a Parquet file of this table."""
    schema = pa.Schema.from_pandas(table)
    return dict(zip(schema.names, schema.types, strict=True))
