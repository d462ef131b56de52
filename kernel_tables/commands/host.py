"""The command that tells what the host did: kernel-tables host CAPTURE."""

from __future__ import annotations

import argparse
import sys

from kernel_tables.commands.options import add_capture, add_output, add_step_name, require_output, write

SUMMARY = "time of CUDA calls, calls of the OS runtime and sampled stacks, by thread, phase and function"
ABSENT = {
    "osrt": "no calls of the OS runtime (nsys profile --trace=cuda,nvtx,osrt)",
    "sample": "no sampled stacks (nsys profile --sample=process-tree --python-sampling=true)",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_capture(parser)
    add_output(parser)
    add_step_name(parser)
    parser.add_argument("--by", choices=("phase", "range"), default="phase", help="where time is told (default: phase)")


def run(options: argparse.Namespace) -> int:
    require_output(options, options.capture)
    from kernel_tables.host.table import host_table, sources_of
    from kernel_tables.trace import Trace

    with Trace(options.capture) as trace:
        table = host_table(trace, options.by, options.step_name)
    write(table, options)
    held = sources_of(table)
    absent = [told for source, told in ABSENT.items() if source not in held]
    if absent:
        print(f"kernel_tables: the capture holds {' and '.join(absent)}", file=sys.stderr)
    return 0
