"""Measures one row of the attention sweep, every context length in one process, and writes what came out as JSON.

    python -m cs336_model.program.operator.row --spec '{...}' --output row.json

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
from cs336_model.program.loaded_distributions import loaded_distributions
from cs336_model.program.loading import code_loaded
from cs336_model.program.operator.cell import cell
from cs336_model.program.operator.spec import RowSpec, read_row
from cs336_model.program.process_cost import process_age_seconds
from cs336_model.program.result import write_result
from cs336_model.program.variants.attention import forced_backend
from cs336_model.program.variants.compilation import compiler_settings
from cs336_model.program.variants.precision import choose_matmul_precision


def main(arguments: list[str] | None = None) -> None:
    """Measures one row and writes its result."""
    parser = argparse.ArgumentParser(prog="python -m cs336_model.program.operator.row")
    parser.add_argument("--spec", required=True, help="the row, as JSON (see cs336_model/program/operator/spec.py)")
    parser.add_argument("--output", required=True, type=Path, help="where the result is written, as JSON")
    parser.add_argument("--lease", type=Path, help="the socket where this program asks for its GPU")
    options = parser.parse_args(arguments)
    spec = read_row(options.spec)
    take_lease(options.lease)
    write_result(row(spec), options.output)


def row(spec: RowSpec) -> dict[str, Any]:
    """The result of one row: its cells, the machine, and the files that it ran."""
    device = resolve_device(spec.device)
    choose_matmul_precision(spec)
    cells = []
    with compiler_settings(spec), forced_backend(spec):
        open_context(device)
        for context_length in spec.context_lengths:
            cells.append(cell(spec, context_length, device))
            print(f"{spec.run}: context {context_length}: {cells[-1]['status']}", file=sys.stderr, flush=True)
            make_room(device)
    facts = {"machine": machine_facts(device), "device_total_bytes": memory_facts(device)["device_total_bytes"]}
    facts |= {"process_seconds": process_age_seconds()}
    ran = {"loaded": code_loaded(), "loaded_distributions": loaded_distributions()}
    return {"spec": vars(spec), "cells": cells} | facts | ran


def make_room(device: torch.device) -> None:
    """Gives back what the last length has left, so that the next has all memory."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
