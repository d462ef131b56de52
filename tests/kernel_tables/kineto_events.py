"""Traces of PyTorch's profiler, written out in a few lines."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from kernel_tables.kineto.capture import capture_tables
from kernel_tables.kineto.trace import TorchTrace

FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int, float)"
KERNEL = {"device": 0, "context": 1, "stream": 7, "grid": [2, 1, 1], "block": [128, 1, 1], "registers per thread": 16}


def event(category: str, name: str, start_us: float, us: float, thread: int = 11, pid: int = 5, **args: Any) -> dict:
    return {
        "ph": "X", "cat": category, "name": name, "ts": start_us, "dur": us, "pid": pid, "tid": thread, "args": args,
    }  # fmt: skip


def trace_of(folder: Path, *events: dict, devices: tuple[dict, ...] = ()) -> TorchTrace:
    path = folder / "trace.json"
    path.write_text(json.dumps({"deviceProperties": list(devices), "traceEvents": list(events)}))
    return TorchTrace(path)


def rows_of(trace: TorchTrace, on_gpu: bool) -> dict[str, list[dict[str, Any]]]:
    """The rows of every table."""
    tables = capture_tables(trace, on_gpu, "2")
    return {name: _rows(table) for name, table in tables.items()}


def _rows(table: dict) -> list[dict[str, Any]]:
    columns = [column.tolist() if isinstance(column, np.ndarray) else list(column) for column in table.values()]
    return [dict(zip(table, row, strict=True)) for row in zip(*columns, strict=True)]
