"""The tables of `ranges`, `kernels` and `classes`: selection, order and format of their rows."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, NamedTuple

from kernel_tables import errors, units
from kernel_tables.commands.shared import show, text_width, wants_text, write

if TYPE_CHECKING:
    import pandas as pd

    from kernel_tables.trace import Trace

ROWS_IN_A_TERMINAL = 40
NO_RANGES = "no range was recorded; `kernel-tables kernels` shows what ran\n"
TABLES = ("ranges", "kernels", "classes")


class TableSelection(NamedTuple):
    trace: Trace
    rank: int
    process: int | None  # global id; None for all processes of the capture
    table: pd.DataFrame
    rows: pd.DataFrame  # those of the table that are written


def add_table_options(command: argparse.ArgumentParser, table: str) -> None:
    by_rank = "rows by rank, in text one table per rank (the default for several captures)"
    command.add_argument("--ranks", action="store_true", help=by_rank)
    default = f"default: all, in a terminal {ROWS_IN_A_TERMINAL}"
    command.add_argument("--top", type=int, metavar="N", help=f"the first N rows, 0 for all ({default})")
    command.add_argument("--sort", metavar="COLUMN", help="sort by this column: numbers descending, names ascending")
    if table == "ranges":
        command.add_argument(
            "--tree", action="store_true", help="one row per range path, inner ranges below outer ranges"
        )
    else:
        command.add_argument("--full", action="store_true", help="do not shorten names of kernels in a terminal")


def write_tables(traces: Sequence[Trace], options: argparse.Namespace) -> None:
    """Writes the table: aligned in a terminal, else in the format of the options.

    Several captures, or --ranks, give a table by rank: with a column `rank`, in a terminal one table per rank.
    """
    is_text = wants_text(options)
    default_top = ROWS_IN_A_TERMINAL if is_text else 0
    top = default_top if options.top is None else options.top
    if len(traces) == 1 and not options.ranks:
        selections = [_selection(traces[0], 0, None, options, top)]
    else:
        from kernel_tables.ranks.ranks import ranks_of

        selections = [_selection(rank.trace, rank.number, rank.process, options, top) for rank in ranks_of(traces)]
    if is_text:
        headings = [f"rank {selection.rank}\n" if len(selections) > 1 else "" for selection in selections]
        tables = [_lines(selection, options, text_width()) for selection in selections]
        text = "\n".join(heading + lines for heading, lines in zip(headings, tables, strict=True))
        if any(trace.is_cpu_only for trace in traces):
            text += fill(units.CPU_ONLY_NOTE, text_width()) + "\n"
        if any(trace.has_graphs_as_one for trace in traces):
            text += fill(units.GRAPHS_NOTE, text_width()) + "\n"
        show(text, options)
    elif options.ranks or len(traces) > 1:
        import pandas as pd

        tables = {selection.rank: selection.rows for selection in selections}
        write(pd.concat(tables, names=["rank"]).reset_index("rank").reset_index(drop=True), options)
    else:
        write(selections[0].rows, options)


def _selection(trace: Trace, rank: int, process: int | None, options: argparse.Namespace, top: int) -> TableSelection:
    is_tree = getattr(options, "tree", False)
    method = getattr(trace, "range_tree" if is_tree else options.command)
    table = _sorted(method(options.under, process), options, is_tree)
    return TableSelection(trace, rank, process, table, table.head(top) if top > 0 else table)


def _sorted(table: pd.DataFrame, options: argparse.Namespace, is_tree: bool) -> pd.DataFrame:
    if options.sort is None:
        return table
    if is_tree:
        raise errors.TraceError("--sort and --tree: a tree has a fixed order; give only one of the two")
    if options.sort not in table:
        raise errors.TraceError(f"--sort {options.sort}: no such column; there are {', '.join(table.columns)}")
    is_number = table[options.sort].dtype.kind in "iuf"
    return table.sort_values(options.sort, ascending=not is_number, kind="stable", ignore_index=True)


def _lines(selection: TableSelection, options: argparse.Namespace, width: int) -> str:
    """The rows in this width, and a line on the rows that are left out. Below a tree of the whole capture, there is the
    time of a step, too."""
    from kernel_tables.terminal.tables import class_lines, kernel_lines, names_of, range_lines, rest_line, tree_lines

    trace, process, table, rows = selection.trace, selection.process, selection.table, selection.rows
    heading = units.time_heading(trace.is_cpu_only)
    all_ns = int(trace.classes(options.under, process)["total_ns"].sum())
    left_out = table.iloc[len(rows) :]
    if options.command == "ranges":
        if table.empty:
            return NO_RANGES
        if options.tree:
            max_rows = ROWS_IN_A_TERMINAL if options.top is None else options.top
            tree = tree_lines(trace, max_rows, width, options.under, process)
            return tree + (_step_time_line(trace, width) if options.under is None and process is None else "")
        return range_lines(rows, all_ns, width, heading) + rest_line(len(left_out), "ranges", None, width, heading)
    share = left_out["total_ns"].sum() / all_ns if all_ns else None
    names = {} if options.full else names_of(table)
    table_lines = kernel_lines if options.command == "kernels" else class_lines
    lines = table_lines(rows, all_ns, width, heading, names)
    return lines + rest_line(len(left_out), options.command, share, width, heading)


def _step_time_line(trace: Trace, width: int) -> str:
    """The sentence on the wall time of a step, in lines; "" without steps."""
    from kernel_tables.diagnosis.scope import Scope
    from kernel_tables.diagnosis.step_time import step_time

    time = step_time(Scope(trace))
    return fill(time.sentence, width, subsequent_indent="  ") + "\n" if time and time.steps else ""
