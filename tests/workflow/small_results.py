"""Results of a small run, as measured programs leave them."""

from pathlib import Path
from typing import Any

import msgspec

from cs336_model.results import STAGES, Result, write_result
from cs336_model.spec import Spec

MACHINE = {
    "device": "cuda", "device_name": "NVIDIA H200", "driver": "580.82", "cuda": "13.0", "torch": "2.11.0",
    "python": "3.12.3", "cpu_name": "Some CPU", "cores": 16, "threads": 16,
}  # fmt: skip
SIZES = {"d_model": 16, "d_ff": 32, "num_layers": 1, "num_heads": 2}
TIMES = {
    "step_seconds": [0.010, 0.012, 0.014], "phase_seconds": {"forward": [0.004, 0.004, 0.004], "loss": []},
    "warmup_seconds": [0.05], "warmup_phase_seconds": {"forward": [0.02]}, "losses": [4.0, 3.5, 3.0, 2.5],
}  # fmt: skip
FACTS = {
    "timing": TIMES | {"parameters": 1000, "forward_flops": 5000, "peak_allocated_bytes": 10},
    "capture": TIMES | {"profiler": "nsys", "nsys": "2025.3.1"},
}
OUT_OF_MEMORY = {
    "status": "out_of_memory", "reason": "memory ran out", "step_seconds": [], "losses": [], "phase_seconds": {},
    "out_of_memory": {"during": "backward", "requested_bytes": 20, "total_bytes": 30},
}  # fmt: skip


def make_key(run: str, stage: str, **spec: Any) -> dict:
    """What a result was made from."""
    told = {"model": "small", "context_length": 8, "mode": "train_step", "sizes": SIZES, "vocab_size": 50}
    told |= {"measured_steps": 3, "warmup_steps": 1} | spec
    return {"spec": msgspec.to_builtins(Spec(run=run, stage=stage, **told)), "code": "00"}


def make_result(run: str, stage: str, spec: dict | None = None, machine: dict | None = None, **facts: Any) -> Result:
    """A complete result of a stage, changed by these facts."""
    began = {
        "status": "complete",
        "key": make_key(run, stage, **(spec or {})),
        "machine": MACHINE | (machine or {}),
        "started_utc": "2026-01-02T03:04:05Z",
    }
    return msgspec.convert(began | FACTS.get(stage, {}) | facts, STAGES[stage])


def write(folder: Path, result: Result) -> str:
    """Writes a result where its stage and process belong, and returns that path, relative to the folder."""
    spec = result.key["spec"]
    parts = ["results", "runs"] if spec["process"] == 1 else ["results", "processes", str(spec["process"])]
    path = folder.joinpath(*parts, spec["run"], f"{spec['stage']}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_result(result, path)
    return str(path.relative_to(folder))
