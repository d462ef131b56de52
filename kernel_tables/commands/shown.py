"""The tables of `ranges`, `kernels` and `classes`: which rows, in which order, and for whom, a person or a program."""

from __future__ import annotations

import argparse
import sys
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from kernel_tables.commands.options import write
from kernel_tables.errors import TraceError

if TYPE_CHECKING:
    import pandas as pd

    from kernel_tables.trace import Trace

ROWS_IN_A_TERMINAL = 40
TABLES = ("ranges", "kernels", "classes")


def add_shown_options(command: argparse.ArgumentParser, table: str) -> None:
    default = f"default: all, in a terminal {ROWS_IN_A_TERMINAL}"
    command.add_argument("--top", type=int, metavar="N", help=f"the first N rows, 0 for all ({default})")
    command.add_argument("--sort", metavar="COLUMN", help="by this column: numbers falling, names rising")
    if table == "ranges":
        command.add_argument(
            "--tree", action="store_true", help="one row per range path, inner ranges below outer ones"
        )
    else:
        command.add_argument("--full", action="store_true", help="full names of kernels in a terminal too")


def write_shown(trace: Trace, options: argparse.Namespace) -> None:
    """The table as the options ask for it: aligned for a person at a terminal, else in a format."""
    is_tree = getattr(options, "tree", False)
    whole = _sorted(getattr(trace, "range_tree" if is_tree else options.command)(options.under), options, is_tree)
    for_a_person = options.output is None and options.format is None and sys.stdout.isatty()
    top = options.top if options.top is not None else ROWS_IN_A_TERMINAL if for_a_person else 0
    rows = whole.head(top) if top > 0 else whole
    if for_a_person:
        print_safely(_lines(trace, whole, rows, options, get_terminal_size().columns))
    else:
        write(rows, options)


def print_safely(text: str) -> None:
    """Writes the text to standard output, with a question mark for what its encoding lacks."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))


def _sorted(table: pd.DataFrame, options: argparse.Namespace, is_tree: bool) -> pd.DataFrame:
    if options.sort is None:
        return table
    if is_tree:
        raise TraceError("--sort and --tree: a tree has an order of its own; ask for one of the two")
    if options.sort not in table:
        raise TraceError(f"--sort {options.sort}: no such column; there are {', '.join(table.columns)}")
    is_number = table[options.sort].dtype.kind in "iuf"
    return table.sort_values(options.sort, ascending=not is_number, kind="stable", ignore_index=True)


def _lines(trace: Trace, whole: pd.DataFrame, rows: pd.DataFrame, options: argparse.Namespace, width: int) -> str:
    """The rows in the terminal's width, and a line on those left out."""
    from kernel_tables.terminal.tables import class_lines, kernel_lines, names_of, range_lines, rest_line

    all_ns = int(trace.classes(options.under)["total_ns"].sum())
    left = whole.iloc[len(rows) :]
    if options.command == "ranges":
        return range_lines(rows, all_ns, width) + rest_line(len(left), "ranges", None, width)
    share = left["total_ns"].sum() / all_ns if all_ns else None
    names = {} if options.full else names_of(whole)
    if options.command == "kernels":
        return kernel_lines(rows, all_ns, width, names) + rest_line(len(left), "kernels", share, width)
    return class_lines(rows, all_ns, width, names) + rest_line(len(left), "classes", share, width)
