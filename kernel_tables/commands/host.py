"""The command for the time of the host: kernel-tables host CAPTURE."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kernel_tables.commands import shared
from kernel_tables.host import CUDA, NATIVE, OS_RUNTIME, PYTHON, UNKNOWN

if TYPE_CHECKING:
    import pandas as pd

OPERATOR = "operator"  # the source of a call where no GPU was used
SUMMARY = "time of CUDA calls, operating system calls and sampled functions, by thread, phase and function"
NO_CALLS = "the capture holds no calls of the OS runtime (nsys profile --trace=cuda,nvtx,osrt)"
NOT_BY_TORCH = "PyTorch's profiler records no calls of the OS runtime and samples no stacks; nsys does both"
NO_STACKS = "the capture holds no sampled stacks (nsys profile --python-sampling=true, or --sample=process-tree)"
NO_FRAMES = "the export holds no frames of its Python samples (nsys export --type sqlite --include-blobs=true)"


def add_options(parser: argparse.ArgumentParser) -> None:
    shared.add_capture(parser)
    shared.add_output(parser)
    shared.add_step_name(parser)
    by_help = "group times by phase, or by innermost range (default: phase)"
    parser.add_argument("--by", choices=("phase", "range"), default="phase", help=by_help)


def run(options: argparse.Namespace) -> int:
    shared.require_output(options, options.capture)
    from kernel_tables.host.table import host_table

    with shared.open_trace(options.capture, options) as trace:
        table = host_table(trace, options.by, options.step_name)
        if trace.is_cpu_only:  # its calls are operators
            table["source"] = table["source"].replace(CUDA, OPERATOR)
    shared.write(table, options)
    by_torch = trace.metadata.get("CAPTURE_BACKEND") == "torch"
    for sentence in (NOT_BY_TORCH,) if by_torch else _missing_sources(table):
        shared.say(sentence)
    return 0


def _missing_sources(table: pd.DataFrame) -> Iterator[str]:
    """What the capture lacks, and the option that records it."""
    samples = table[table["source"].isin((PYTHON, NATIVE))]
    if not (table["source"] == OS_RUNTIME).any():
        yield NO_CALLS
    if samples.empty:
        yield NO_STACKS
    elif (samples["source"] == PYTHON).any() and (samples["function"] == UNKNOWN).all():
        yield NO_FRAMES
