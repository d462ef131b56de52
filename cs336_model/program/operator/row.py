"""Measures attention alone, every context length in one process, and writes what came out as JSON.

    python -m cs336_model.program.operator.row --spec '{...}' --output operator.json

A cell that runs out of memory or that PyTorch refuses is a result; every other failure is a traceback, an exit status
other than 0, and no result.
"""

import argparse
import gc
import sys
from pathlib import Path
from typing import Any

import torch

from cs336_model.program.device import machine_facts, memory_facts, open_context, resolve_device
from cs336_model.program.lease import take_lease
from cs336_model.program.operator.cell import cell
from cs336_model.program.operator.spec import RowSpec, read_row
from cs336_model.program.process_cost import Progress, process_age_seconds
from cs336_model.program.result import empty_result, facts_of_process, write_result
from cs336_model.program.variants.attention import forced_backend
from cs336_model.program.variants.compilation import compiler_settings
from cs336_model.program.variants.precision import choose_matmul_precision


def main(arguments: list[str] | None = None) -> None:
    """Measures one run and writes its result."""
    parser = argparse.ArgumentParser(prog="python -m cs336_model.program.operator.row")
    parser.add_argument("--spec", required=True, help="the run, as JSON (see cs336_model/program/operator/spec.py)")
    parser.add_argument("--output", required=True, type=Path, help="where the result is written, as JSON")
    parser.add_argument("--lease", type=Path, help="the socket where this program asks for its GPU")
    options = parser.parse_args(arguments)
    spec, progress = read_row(options.spec), Progress()
    progress.seconds["import"] = process_age_seconds()
    with progress.stage("wait"):
        take_lease(options.lease)
    write_result(row(spec, progress), options.output)


def row(spec: RowSpec, progress: Progress) -> dict[str, Any]:
    """A result as every program writes it, and `cells`: one for each context length."""
    device = resolve_device(spec.device)
    choose_matmul_precision(spec)
    cells, memory = [], {}
    with compiler_settings(spec), forced_backend(spec):
        with progress.stage("context"):
            open_context(device)
        for context_length in spec.context_lengths:
            cells.append(cell(spec, context_length, device, progress))
            print(f"{spec.run}: context {context_length}: {cells[-1]['status']}", file=sys.stderr, flush=True)
            memory = most_of(memory, memory_facts(device))
            make_room(device)
    facts = {"machine": machine_facts(device), "memory": memory} | facts_of_process(progress, device)
    return empty_result(spec, "none") | {"status": "complete", "cells": cells} | facts


def most_of(memory: dict[str, int | None], further: dict[str, int | None]) -> dict[str, int | None]:
    """The larger of each number of bytes: every cell counts its peak by itself."""
    return {name: count and max(count, memory.get(name) or 0) for name, count in further.items()}


def make_room(device: torch.device) -> None:
    """Gives back what the last length has left, so that the next has all memory."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
