"""The command that makes the page of a capture: kernel-tables report CAPTURE."""

import argparse
from pathlib import Path

from kernel_tables import errors, files, whole_files
from kernel_tables.commands.shared import add_capture, add_classes, add_step_name, opened_trace, say

SUMMARY = "an HTML page of a capture, which needs no network: summary, findings, tables, flame graph, timeline"
MARK = '<meta name="generator" content="kernel-tables">'  # of a page that may be overwritten
HEAD = 2000  # bytes in which the mark is searched


def add_options(parser: argparse.ArgumentParser) -> None:
    add_capture(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write to FILE (default: CAPTURE's name with .html, in this folder)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    add_step_name(parser)
    add_classes(parser)


def run(options: argparse.Namespace) -> int:
    output = options.output or Path(f"{options.capture.name.partition('.')[0] or 'capture'}.html")
    files.require_no_capture(output, [options.capture, *files.reports_beside(options.capture)])
    replaces = _is_page(output)
    from kernel_tables.report.report import report

    with opened_trace(options.capture, options) as trace:
        html = report(trace, options.step_name, options.capture.name)
    with whole_files.written_whole(output) as partial:
        partial.write_text(html, encoding="utf-8")
    print(output)
    address = output.absolute().as_uri()
    say(f"{'the page before was replaced; ' if replaces else ''}open {address}")
    if options.open:
        import webbrowser

        if not webbrowser.open(address):
            say("no browser could be opened")
    return 0


def _is_page(output: Path) -> bool:
    """Whether the page exists already. TraceError if another file is there, which is not overwritten."""
    if not output.is_file():
        return False
    if MARK.encode() not in files.first_bytes(output, HEAD):
        raise errors.TraceError(
            f"{output}: an existing file that is not a page of kernel-tables is never overwritten; remove it, or name"
            " another with -o FILE"
        )
    return True
