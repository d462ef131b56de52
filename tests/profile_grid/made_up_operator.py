"""Runs of attention alone, made up: what their process left, and the tables of the study."""

import json

import pandas as pd

from profile_grid.merging.merge import merged_tables
from profile_grid.results.load_runs import MeasuredRun
from profile_grid.results.results import StageResult, StageStatus
from profile_grid.study.dimensions import DIMENSIONS
from profile_grid.study.stages import OPERATOR
from profile_grid.typed_json import parse_as
from tests.profile_grid.made_up_results import MACHINE as CPU
from tests.profile_grid.made_up_results import TIMING, changed

MACHINE = CPU | {"device": "cuda", "device_name": "NVIDIA H200"}
GIB = 2**30
PLAIN = {one.key: one.default for one in DIMENSIONS} | {"model": "attention", "batch_size": 8, "head_dim": 64}


def cell(ms: float | None, context: int = 256, gib: float | None = 1.0, status: str = "complete", **changes) -> dict:
    """A cell whose forward passes take `ms` ± a tenth, and whose backward passes twice as long."""
    forward = [] if ms is None else [ms / 1e3 * factor for factor in (0.9, 1.0, 1.1)]
    held = None if gib is None else int(gib * GIB)
    return {
        "context_length": context, "status": status, "reason": None, "out_of_memory": None, "compile_seconds": None,
        "forward_seconds": forward, "backward_seconds": [2 * seconds for seconds in forward],
        "memory_before_backward_bytes": held, "peak_bytes": held, "bench_method": None, "bench_seconds": {},
        "output_error": None if ms is None else 1e-6, "gradient_error": None if ms is None else 2e-6,
    } | changes  # fmt: skip


def operator_result(*cells: dict, machine: dict = MACHINE, specification: dict | None = None) -> dict:
    """What operator.json holds of these cells."""
    settings = specification or {"program": {}}
    return changed(
        TIMING, facts={"cells": list(cells)}, specification=settings, program__spec=settings["program"],
        program__machine=machine, program__step_seconds=[], program__warmup_seconds=[], program__losses=[],
        program__phase_seconds={}, program__warmup_phase_seconds={},
        program__cost_seconds={"import": 1.0, "warmup": 0.0, "measured": 0.5},
    )  # fmt: skip


def run(name: str, *cells: dict, machine: dict = MACHINE, **dimensions) -> MeasuredRun:
    result = parse_as(StageResult, json.loads(json.dumps(operator_result(*cells, machine=machine))))
    entry = {"run": name, **PLAIN, **dimensions, "specifications": {OPERATOR.name: {}}}
    return MeasuredRun(entry, {OPERATOR.name: result}, {OPERATOR.name: StageStatus("complete", None, [])})


def single_calls(ms: float) -> dict:
    """The entries of a cell whose single forward passes take `ms` ± a tenth, and backward passes twice as long."""
    forward = [ms / 1e3 * factor for factor in (0.9, 1.0, 1.1)]
    times = {
        name: [factor * seconds for seconds in forward]
        for name, factor in (("forward", 1), ("backward", 2), ("both", 3))
    }
    return {"bench_method": "CUDA events", "bench_seconds": times}


def out_of_memory(context: int) -> dict:
    record = {"during": f"context {context}", "requested_bytes": 2 * GIB, "free_bytes": GIB, "total_bytes": 140 * GIB}
    return cell(None, context, None, "out_of_memory", out_of_memory=record)


def three() -> list[MeasuredRun]:
    """Written out, flash and compiled at two lengths; the first runs out of memory at the longer one."""
    return [
        run("eager", cell(1.0), out_of_memory(1024)),
        run("flash", cell(0.25), cell(2.0, 1024, 0.5), attention="flash"),
        run("compiled", cell(0.5, compile_seconds=4.0), cell(5.0, 1024), compile="on"),
    ]


def merged(runs: list[MeasuredRun], folder) -> dict[str, pd.DataFrame]:
    """The merged tables of these runs; FOLDER, which need not exist, is that of the runs."""
    return merged_tables(runs, folder)
