"""The tables of `ranges`, `kernels` and `classes` as lines for a terminal, and sentences on communication.

`heading` is that of the column of times: GPU time, or operators' time on a processor. `all_ns` is the time of which
shares are taken.
"""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from kernel_tables.kernel_names.short import short_names
from kernel_tables.terminal.columns import TextColumn, aligned, cut
from kernel_tables.trace import Trace
from kernel_tables.units import bar, duration, percent, time_heading
from kernel_tables.views.readable_tree import RangeTree

INDENT = "  "
BAR_CHARS = 12
MIN_NAME_CHARS, MIN_PATH_CHARS = 24, 12
MAX_RANGE_CHARS = 60  # of a range in the tree
NO_RANGE = "(no range)"
ALL_ROWS_OPTION = "--top 0"


def range_lines(table: pd.DataFrame, all_ns: int, width: int, heading: str) -> str:
    times = (table["gpu_time_ns"] + table["memop_time_ns"]).tolist()
    columns = [
        TextColumn("range", table["range"].tolist(), right=False, min_chars=MIN_NAME_CHARS),
        _counts("times", table["instances"], drop_rank=2),
        _counts("kernels", table["kernels"], drop_rank=1),
        *_times(heading, times, all_ns),
        _counts("copies, fills", table["memops"], drop_rank=4),
    ]
    return aligned(columns, width)


def tree_lines(
    trace: Trace, max_rows: int, width: int, under: str | None = None, process: int | None = None,
    all_rows_command: str = ALL_ROWS_OPTION,
) -> str:  # fmt: skip
    """The tree of ranges in about `max_rows` rows (0: all). A line below it says how many ranges are left out, and that
    `all_rows_command` shows them."""
    tree = RangeTree(trace, under, process)
    rows = tree.rows(max_rows)
    left_out = len(tree) - sum(row.range_count == 1 for row in rows)  # other rows are sums of smaller ranges
    all_ns, heading = int(trace.classes(under, process)["total_ns"].sum()), time_heading(trace.is_cpu_only)
    nodes, times = [row.node for row in rows], [row.node.ns for row in rows]
    counts = ["" if node.instances is None else f"{node.instances:,}" for node in nodes]
    memops = [f"{node.memops:,}" if node.memops else "" for node in nodes]
    labels = [INDENT * row.depth + cut(row.label, MAX_RANGE_CHARS) for row in rows]
    columns = [
        TextColumn("range", labels, right=False, min_chars=MIN_NAME_CHARS),
        TextColumn("times", counts, drop_rank=7),
        TextColumn("kernels", [f"{node.kernels:,}" for node in nodes], drop_rank=2),
        *_times(heading, times, all_ns, bar_drop_rank=8),
        *([TextColumn("copies, fills", memops, drop_rank=9)] if any(memops) else []),
    ]
    return aligned(columns, width) + rest_line(left_out, "ranges", None, width, heading, all_rows_command)


def names_of(table: pd.DataFrame) -> dict[str, str]:
    """The short names of the kernels in a table, all different."""
    return short_names(table["kernel" if "kernel" in table else "largest_kernel"])


def kernel_lines(table: pd.DataFrame, all_ns: int, width: int, heading: str, short: Mapping[str, str]) -> str:
    """The kernels by range path, with their names in `short`. If `short` is empty, names are full, and are not cut."""
    times, paths = table["total_ns"].tolist(), [path or NO_RANGE for path in table["range"]]
    columns = [
        _kernels("kernel", table["kernel"], short),
        TextColumn("range", paths, right=False, min_chars=MIN_PATH_CHARS, cut_start=True, drop_rank=1),
        TextColumn("class", table["class"].tolist(), right=False, min_chars=MIN_PATH_CHARS, drop_rank=6),
        _counts("launches", table["launches"], drop_rank=2),
        *_times(heading, times, all_ns),
        TextColumn("mean", list(map(duration, table["mean_ns"])), drop_rank=5),
        TextColumn("min", list(map(duration, table["min_ns"])), drop_rank=8),
        TextColumn("max", list(map(duration, table["max_ns"])), drop_rank=7),
    ]
    return aligned(columns, width)


def class_lines(table: pd.DataFrame, all_ns: int, width: int, heading: str, short: Mapping[str, str]) -> str:
    """The classes of kernels, each with the kernel with the most time, whose name is in `short` as above."""
    times = table["total_ns"].tolist()
    columns = [
        TextColumn("class", table["class"].tolist(), right=False, min_chars=MIN_NAME_CHARS),
        _counts("kernels", table["kernels"], drop_rank=2),
        _counts("launches", table["launches"], drop_rank=1),
        *_times(heading, times, all_ns),
        _kernels("most time in", table["largest_kernel"], short, drop_rank=4),
    ]
    return aligned(columns, width)


def rest_line(
    left_out: int, noun: str, share: float | None, width: int, heading: str, all_rows_command: str = ALL_ROWS_OPTION
) -> str:
    """The line below a table on its left-out rows: how many `noun`, their `share` of the time if it is given, and what
    shows all. "" if there are none."""
    if not left_out:
        return ""
    share_text = "" if share is None else f", {percent(share)} of the {heading}"
    return cut(f"{left_out:,} more {noun}{share_text}; {all_rows_command} shows all", width) + "\n"


def _kernels(heading: str, names: pd.Series, short: Mapping[str, str], drop_rank: int = 0) -> TextColumn:
    texts = [short.get(name, name) for name in names]
    return TextColumn(heading, texts, right=False, min_chars=MIN_NAME_CHARS if short else None, drop_rank=drop_rank)


def _times(heading: str, times: Sequence[float], all_ns: int, bar_drop_rank: int = 3) -> list[TextColumn]:
    """The columns of the times, of their shares of `all_ns`, and of these as bars."""
    shares = [time / all_ns if all_ns else 0.0 for time in times]
    bars = TextColumn("", [bar(share, BAR_CHARS).rstrip() for share in shares], right=False, drop_rank=bar_drop_rank)
    return [TextColumn(heading, list(map(duration, times))), TextColumn("share", list(map(percent, shares))), bars]


def _counts(heading: str, counts: pd.Series, drop_rank: int) -> TextColumn:
    return TextColumn(heading, [f"{count:,}" for count in counts.tolist()], drop_rank=drop_rank)


def communication_sentences(table: pd.DataFrame, numbers: Mapping[int, int]) -> Iterator[str]:
    """A sentence for each rank and device of a table of `communication` that ran a collective, with the means over its
    steps. `numbers` are the numbers to print by rank in the table."""
    has_several_devices = table.groupby("rank")["device"].nunique().gt(1)
    for (rank, device), steps in table.groupby(["rank", "device"]):
        mean = steps.mean(numeric_only=True)
        if not mean["collectives"]:
            continue
        exposed_ns, step_ns = mean["exposed_communication_ns"], mean["step_ns"]
        source = f"rank {numbers[rank]}" + (f", device {device}" if has_several_devices[rank] else "")
        text = (
            f"{source}: communication takes {duration(mean['communication_ns'])} of a step of {duration(step_ns)},"
            f" {duration(exposed_ns)} of it ({percent(exposed_ns / step_ns)} of the step) not overlapped by computation"
        )
        if not steps["waiting_ns"].isna().any():
            text += f"; its collectives wait {duration(mean['waiting_ns'])} for the slowest rank"
        yield text
