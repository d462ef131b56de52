"""Merged tables of made-up runs whose sums one can do in the head."""

from pathlib import Path

import pandas as pd

from workflow.grid import Run
from workflow.tables import KEYS, declared_columns, write_table

DEFAULTS = {
    **{key: getattr(Run(), key) for key in KEYS[4:]},
    "model": "tiny", "context_length": 128, "mode": "forward", "batch_size": 4,
}  # fmt: skip
SIZES = {"d_model": 64, "d_ff": 128, "num_layers": 2, "num_heads": 2, "vocab_size": 100, "parameters": 2_000_000}
MACHINE = {
    "device": "cuda", "device_name": "NVIDIA H200", "driver": "580", "cuda": "13.0", "torch": "2.11", "backend": "nsys",
    "nsys": "2025.3", "timing_status": "complete", "capture_status": "complete", "forward_flops": 10**9, "loss": 2.0,
    "steps_timed": 10, "steps_captured": 3,
}  # fmt: skip
BIG_GEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)"
BLOCK = "block > attention > scaled dot product attention"
KERNELS = [  # phase, range, kernel, class, launches and ns of each step
    ("forward", f"{BLOCK} > computing attention scores", "sgemm", "gemm", 2, 300_000),
    ("forward", f"{BLOCK} > computing softmax", "exp|`<T>`\nend", "elementwise", 4, 100_000),
    ("forward", f"{BLOCK} > final matmul", "sgemm", "gemm", 2, 100_000),
    ("forward", "block > feed-forward", BIG_GEMM, "gemm/cutlass", 2, 500_000),
    ("backward", f"{BLOCK} > computing softmax > softmax_backward", "grad", "elementwise", 4, 500_000),
    ("backward", "block > feed-forward", BIG_GEMM, "gemm/cutlass", 4, 1_000_000),
    ("optimizer", "", "adam", "elementwise", 6, 500_000),
]  # fmt: skip


def make_run(name: str, speed: float = 1.0, steps: int = 3, wall_ms: float = 4.0, **values) -> dict[str, list[dict]]:
    """The rows of a run by table: GPU time is that of KERNELS ÷ `speed`, and grows by 0.1 % from step to step."""
    keys = {"run": name} | DEFAULTS | {key: value for key, value in values.items() if key in KEYS}
    tables = {"runs": [keys | SIZES | MACHINE | values], "timings": [], "phases": [], "kernels": [], "ranges": []}
    phases = ["forward"] if keys["mode"] == "forward" else ["forward", "backward", "optimizer"]
    rows = [row for row in KERNELS if row[0] in phases]
    if tables["runs"][0]["timing_status"] != "complete":
        return tables
    for phase in ["step", *phases]:
        time = {"n": 10, "mean_ms": wall_ms, "std_ms": 0.1, "min_ms": 3.9, "max_ms": 4.1, "processes": 1}
        tables["timings"].append(keys | time | {"phase": phase, "process_spread": None, "status": "complete"} | {
            key: value for key, value in values.items() if key in ("processes", "process_spread")
        })  # fmt: skip
    for step in range(steps):
        times = [round(row[5] / speed * (1 + step / 1000)) for row in rows]
        for row, total in zip(rows, times, strict=True):
            names = dict(zip(["phase", "range", "kernel", "class", "launches"], row[:5], strict=True))
            spread = {"total_ns": total, "mean_ns": total / row[4], "min_ns": 1, "max_ns": total}
            tables["kernels"].append(keys | names | spread | {"step": step})
            ranges = {"phase": row[0], "range": row[1], "instances": 2, "wall_ns": 1, "gpu_time_ns": total}
            tables["ranges"].append(keys | ranges | {"step": step, "kernels": row[4], "memop_time_ns": 0, "memops": 0})
        for phase in ["step", *phases]:
            inside = [number for number, row in enumerate(rows) if phase in ("step", row[0])]
            busy = sum(times[number] for number in inside)
            tables["phases"].append(keys | {
                "step": step, "phase": phase, "wall_ns": 2 * busy, "gpu_span_ns": busy + 10, "gpu_busy_ns": busy,
                "kernel_ns": busy, "kernels": sum(rows[number][4] for number in inside), "memop_ns": 0, "memops": 0,
            })  # fmt: skip
    return tables


def make_tables(*runs: dict[str, list[dict]]) -> dict[str, pd.DataFrame]:
    """The merged tables of runs."""
    return {name: pd.DataFrame([row for run in runs for row in run[name]]) for name in runs[0]}


def write_tables(folder: Path, *runs: dict[str, list[dict]]) -> list[str]:
    """Writes the merged tables of runs, with what else is declared empty; returns their paths."""
    frames = make_tables(*runs)
    for name, frame in frames.items():
        missing = [column for column in declared_columns(name) if column not in frame]
        write_table(frame.assign(**dict.fromkeys(missing)), folder / f"{name}.parquet")
    return [str(folder / f"{name}.parquet") for name in frames]
