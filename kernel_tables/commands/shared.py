"""Options that commands share, and where their tables may be written."""

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

TEXT, TEXT_WIDTH = "text", 120  # columns, if standard output is not a terminal
CAPTURE_HELP = (
    "an nsys SQLite export, a .nsys-rep (exported by the nsys on PATH), JSON of torch.profiler, or one of them gzipped"
)


OF_RANK = re.compile(r"(.*?)(?:_rank(\d+))?", re.DOTALL)  # how the pipeline names the captures of a run
RANKS_HELP = "several captures are the ranks of one run: rank 0 first, unless each names its rank"


def add_capture(parser: argparse.ArgumentParser, *names: str) -> None:
    """One capture, or one for each of `names`."""
    for name in names or ("capture",):
        parser.add_argument(name, type=Path, metavar=name.upper(), help=CAPTURE_HELP)
    _add_up_to_damage(parser)


def add_captures(parser: argparse.ArgumentParser) -> None:
    """One capture, or the captures of the ranks of one run, in their order."""
    parser.add_argument("captures", type=Path, metavar="CAPTURE", nargs="+", help=f"{CAPTURE_HELP}; {RANKS_HELP}")
    _add_up_to_damage(parser)


def _add_up_to_damage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--up-to-damage", action="store_true", help="read invalid JSON as far as it is valid")


def add_output(parser: argparse.ArgumentParser) -> None:
    default = "default: by FILE's suffix (csv if unknown); without FILE, text in a terminal, else csv"
    parser.add_argument("--format", choices=(TEXT, *output.FORMATS), help=f"the format of the output ({default})")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to FILE (default: standard output)")


def add_trace_output(parser: argparse.ArgumentParser) -> None:
    """The options of `trace`, which is always JSON in a file."""
    parser.add_argument("--format", choices=("json",), help="the only format: json")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", required=True, help="write to FILE, compressed if it ends in .gz"
    )


def add_step_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--step-name", default="step", metavar="NAME", help="the range of one step (default: step)")


def add_classes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--class",
        action="append",
        default=[],
        dest="classes",
        metavar="CLASS=REGEX",
        help="a custom class for kernels whose full name matches, before the built-in rules; repeatable",
    )


@contextmanager
def opened_traces(options: argparse.Namespace) -> Iterator[list[Trace]]:
    """The traces of the captures from `add_captures`, with custom classes if the command has that option."""
    with ExitStack() as stack:
        traces = [stack.enter_context(_opened(path, options)) for path in options.captures]
        if len(traces) > 1 and any(trace.metadata.get("CAPTURE_BACKEND") == "torch" for trace in traces):
            _say_order(traces)
        yield traces


def _say_order(traces: Sequence[Trace]) -> None:
    """Prints that ranks are numbered in the order of the arguments, if the captures do not name their ranks."""
    from kernel_tables.ranks.ranks import numbers_in_run

    if numbers_in_run(traces) is None:
        reason = "not every capture names its rank (distributedInfo), or two name the same"
        say(f"{reason}: ranks are numbered in the order of the arguments")


def opened_trace(path: Path, options: argparse.Namespace) -> AbstractContextManager[Trace]:
    """The trace of one capture. Its rank, where it matters, and what it lacks are printed first."""
    say_rank(path)
    return _opened(path, options)


@contextmanager
def _opened(path: Path, options: argparse.Namespace) -> Iterator[Trace]:
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
    """Prints the rank of a capture if those of other ranks are next to it."""
    stem, _, suffixes = capture.name.partition(".")
    name, rank = OF_RANK.fullmatch(stem).groups()
    if rank or os.path.exists(capture.parent / f"{name}_rank1.{suffixes}"):  # Path.exists raises if a name is too long
        others = "for all ranks: kernel-tables communication, with the captures of all"
        say(f"{capture.name} holds only rank {rank or 0}; {others}")


def custom_classes(options: argparse.Namespace) -> list[dict[str, str]]:
    """The classes from `add_classes` as rules; TraceError for a text that is not CLASS=REGEX."""
    return [_rule(text) for text in options.classes]


def _rule(text: str) -> dict[str, str]:
    name, separator, pattern = text.partition("=")
    if not (name and separator and pattern):
        raise TraceError(f"--class {text!r}: expected CLASS=REGEX, such as gemm=my_matmul.*")
    return {"class": clean_text.visible(name), "pattern": pattern}


def require_output(options: argparse.Namespace, *captures: Path) -> None:
    """Raises TraceError if a table cannot be written, or would overwrite one of `captures`."""
    inputs = [path for capture in captures for path in (capture, *files.reports_beside(capture))]
    if options.output is not None:
        files.require_no_capture(options.output, inputs)
        return
    if sys.stdout is None:
        raise TraceError("standard output is closed; name a file with -o FILE")
    if any(files.is_same_file(1, path) for path in inputs):
        raise TraceError("standard output is the capture itself, which is never written over; name a file with -o FILE")
    if options.format == "parquet" and sys.stdout.isatty():
        raise TraceError("parquet is binary and standard output is a terminal; name a file with -o FILE.parquet")


def wants_text(options: argparse.Namespace) -> bool:
    """Whether a table is printed as aligned text: in a terminal, unless another format is chosen."""
    return options.format == TEXT or (options.output is None and options.format is None and sys.stdout.isatty())


def text_width() -> int:
    """The width of aligned text in characters."""
    return get_terminal_size((TEXT_WIDTH, 24)).columns


def show(text: str, options: argparse.Namespace) -> None:
    """Writes aligned text to the output of the options."""
    if options.output is None:
        print_safely(text)
    else:
        from kernel_tables.output import write_text

        write_text(text, options.output)


def print_safely(text: str) -> None:
    """Writes the text to standard output, with question marks for characters that its encoding lacks."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()  # before messages on standard error


def write(table, options: argparse.Namespace) -> None:
    """Writes the table to the output and in the format of the options; aligned in a terminal."""
    if wants_text(options):
        from kernel_tables.terminal.columns import table_lines

        show(table_lines(table, text_width()), options)
        return
    from kernel_tables.output import write_table

    write_table(table, options.output, options.format or output.format_of(options.output))
