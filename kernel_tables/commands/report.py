"""The command that makes the page of a capture: kernel-tables report CAPTURE."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernel_tables.commands.options import add_capture, add_classes, add_step_name, opened_trace, say_rank
from kernel_tables.files import reports_beside, require_no_capture
from kernel_tables.whole_files import written_whole

SUMMARY = "one page of a capture, a file that opens without a network: summary, findings, tables, flame view, timeline"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_capture(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: CAPTURE's name with .html, here")
    add_step_name(parser)
    add_classes(parser)


def run(options: argparse.Namespace) -> int:
    output = options.output or Path(f"{options.capture.name.partition('.')[0] or 'capture'}.html")
    require_no_capture(output, [options.capture, *reports_beside(options.capture)])
    say_rank(options.capture)
    from kernel_tables.report.report import report

    with opened_trace(options.capture, options) as trace:
        html = report(trace, options.step_name, options.capture.name)
    with written_whole(output) as partial:
        partial.write_text(html, encoding="utf-8")
    print(output)
    return 0
