"""What commands share: options, the opening of captures, and the output of tables and messages."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from kernel_tables import clean_text, files, output
from kernel_tables.errors import TraceError

if TYPE_CHECKING:
    from kernel_tables.trace import Trace

TEXT = "text"
STANDARD_OUTPUT = 1  # its descriptor
DEFAULT_WIDTH = 120  # characters, if standard output is not a terminal
CAPTURE_HELP = (
    "an nsys SQLite export, a .nsys-rep (exported by the nsys on PATH), JSON of torch.profiler, or one of them gzipped"
)
RANK_IN_NAME = re.compile(r"(.*?)(?:_rank(\d+))?", re.DOTALL)  # how `record` and the workflow name captures of ranks
RANKS_HELP = "several captures are the ranks of one run: rank 0 first, unless each names its rank"


def add_capture(parser: argparse.ArgumentParser, *names: str) -> None:
    """Adds an argument for one capture, or one for each of `names`."""
    for name in names or ("capture",):
        parser.add_argument(name, type=Path, metavar=name.upper(), help=CAPTURE_HELP)
    _add_up_to_damage(parser)


def add_captures(parser: argparse.ArgumentParser) -> None:
    """Adds the argument for one capture, or the captures of the ranks of one run."""
    parser.add_argument("captures", type=Path, metavar="CAPTURE", nargs="+", help=f"{CAPTURE_HELP}; {RANKS_HELP}")
    _add_up_to_damage(parser)


def _add_up_to_damage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--up-to-damage", action="store_true", help="read invalid JSON as far as it is valid")


def add_output(parser: argparse.ArgumentParser) -> None:
    default = "default: by FILE's suffix (csv if unknown); without FILE, text in a terminal, else csv"
    parser.add_argument("--format", choices=(TEXT, *output.FORMATS), help=f"the format of the output ({default})")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to FILE (default: standard output)")


def add_trace_output(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `trace`, which writes only JSON, and only to a file."""
    parser.add_argument("--format", choices=("json",), help="the only format: json")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", required=True, help="write to FILE, compressed if it ends in .gz"
    )


def add_step_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--step-name", default="step", metavar="NAME", help="the range of one step (default: step)")


def add_classes(parser: argparse.ArgumentParser) -> None:
    class_help = "a custom class for kernels whose full name matches, before the built-in rules; repeatable"
    parser.add_argument("--class", action="append", default=[], dest="classes", metavar="CLASS=REGEX", help=class_help)


@contextmanager
def open_traces(options: argparse.Namespace) -> Iterator[list[Trace]]:
    """The traces of the captures in the options, with custom classes if the command has that option."""
    with ExitStack() as stack:
        traces = [stack.enter_context(_open_trace(path, options)) for path in options.captures]
        if len(traces) > 1 and any(trace.metadata.get("CAPTURE_BACKEND") == "torch" for trace in traces):
            _say_rank_order(traces)
        yield traces


def _say_rank_order(traces: Sequence[Trace]) -> None:
    """Prints a note if ranks are numbered in the order of the arguments, because captures do not name their ranks."""
    from kernel_tables.ranks.ranks import numbers_in_run

    if numbers_in_run(traces) is None:
        reason = "not every capture names its rank (distributedInfo), or two name the same"
        say(f"{reason}: ranks are numbered in the order of the arguments")


def open_trace(path: Path, options: argparse.Namespace) -> AbstractContextManager[Trace]:
    """The trace of one capture. Prints what say_rank does, and notes on the capture."""
    say_rank(path)
    return _open_trace(path, options)


@contextmanager
def _open_trace(path: Path, options: argparse.Namespace) -> Iterator[Trace]:
    from kernel_tables.trace import Trace

    rules = custom_classes(options) if "classes" in options else []
    with Trace(path, rules, up_to_damage=options.up_to_damage) as trace:
        for note in trace.notes:
            say(f"{path.name}: {note}")
        yield trace


def say(message: str) -> None:
    """Prints a message on one line of standard error."""
    print(f"kernel-tables: {clean_text.visible(' '.join(message.split()))}", file=sys.stderr)


def say_rank(capture: Path) -> None:
    """Prints which rank a capture holds, if its name says it, or if the capture of rank 1 is next to it."""
    stem, _, suffixes = capture.name.partition(".")
    name, rank = RANK_IN_NAME.fullmatch(stem).groups()
    if rank or os.path.exists(capture.parent / f"{name}_rank1.{suffixes}"):  # Path.exists raises if a name is too long
        others = "for all ranks: kernel-tables communication, with the captures of all"
        say(f"{capture.name} holds only rank {rank or 0}; {others}")


def custom_classes(options: argparse.Namespace) -> list[dict[str, str]]:
    """The classes from `add_classes` as rules; TraceError for a text that is not CLASS=REGEX."""
    rules = []
    for text in options.classes:
        name, _, pattern = text.partition("=")
        if not (name and pattern):
            raise TraceError(f"--class {text!r}: expected CLASS=REGEX, such as gemm=my_matmul.*")
        rules.append({"class": clean_text.visible(name), "pattern": pattern})
    return rules


def require_output(options: argparse.Namespace, *captures: Path) -> None:
    """Raises TraceError if the output in the options cannot be written, or would overwrite one of `captures`."""
    inputs = [path for capture in captures for path in (capture, *files.reports_beside(capture))]
    if options.output is not None:
        files.require_no_capture(options.output, inputs)
        return
    if sys.stdout is None:
        raise TraceError("standard output is closed; name a file with -o FILE")
    if any(files.is_same_file(STANDARD_OUTPUT, path) for path in inputs):
        raise TraceError("standard output is the capture itself, which is never written over; name a file with -o FILE")
    if options.format == "parquet" and sys.stdout.isatty():
        raise TraceError("parquet is binary and standard output is a terminal; name a file with -o FILE.parquet")


def wants_text(options: argparse.Namespace) -> bool:
    """Whether a table is written as aligned text: if that format is chosen, or if no format and no file is chosen and
    standard output is a terminal."""
    return options.format == TEXT or (options.output is None and options.format is None and sys.stdout.isatty())


def text_width() -> int:
    """The width of aligned text in characters."""
    return get_terminal_size((DEFAULT_WIDTH, 24)).columns


def show(text: str, options: argparse.Namespace) -> None:
    """Writes text to the output in the options."""
    if options.output is None:
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()  # before messages on standard error
    else:
        from kernel_tables.output import write_text

        write_text(text, options.output)


def write(table, options: argparse.Namespace) -> None:
    """Writes the table to the output in the options, as aligned text (wants_text) or else in their format."""
    if wants_text(options):
        from kernel_tables.terminal.columns import table_lines

        show(table_lines(table, text_width()), options)
        return
    from kernel_tables.output import write_table

    write_table(table, options.output, options.format or output.format_of(options.output))
