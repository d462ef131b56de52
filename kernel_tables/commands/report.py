"""The command that makes the page of a capture: kernel-tables report CAPTURE."""

import argparse
from pathlib import Path

from kernel_tables import errors, files, whole_files
from kernel_tables.commands.shared import add_capture, add_classes, add_step_name, open_trace, say

SUMMARY = "an HTML page of a capture, which needs no network: summary, findings, tables, flame graph, timeline"
PAGE_MARK = b'<meta name="generator" content="kernel-tables">'  # only files with it may be overwritten
HEAD_BYTES = 2000  # of a file: the mark is searched in these


def add_options(parser: argparse.ArgumentParser) -> None:
    add_capture(parser)
    output_help = "write to FILE (default: CAPTURE's name with .html, in this folder)"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=output_help)
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    add_step_name(parser)
    add_classes(parser)


def run(options: argparse.Namespace) -> int:
    output = options.output or Path(f"{options.capture.name.partition('.')[0] or 'capture'}.html")
    files.require_no_capture(output, [options.capture, *files.reports_beside(options.capture)])
    is_replacement = _is_page(output)
    from kernel_tables.report.report import report

    with open_trace(options.capture, options) as trace:
        html = report(trace, options.step_name, options.capture.name)
    with whole_files.written_whole(output) as partial:
        partial.write_text(html, encoding="utf-8")
    print(output)
    address = output.absolute().as_uri()
    say(f"{'the previous page was replaced; ' if is_replacement else ''}open {address}")
    if options.open:
        import webbrowser

        if not webbrowser.open(address):
            say("no browser could be opened")
    return 0


def _is_page(output: Path) -> bool:
    """Whether `output` is an existing page. Raises TraceError if it is another kind of file."""
    if not output.is_file():
        return False
    if PAGE_MARK not in files.first_bytes(output, HEAD_BYTES):
        raise errors.TraceError(
            f"{output}: the file exists, and is not a page of kernel-tables, so it is not overwritten; remove it, or"
            " name another with -o FILE"
        )
    return True
