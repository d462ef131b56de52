"""What people read in a terminal: tables in the width of it, findings, differences, and the units of all of them.

`heading` is that of a column of times: GPU time, or operators' time on a processor. `all_ns` is the time of which
shares are taken. Imports nothing heavy.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING

from kernel_tables.names import short_names
from kernel_tables.output import columns_of, duration, percent, visible

if TYPE_CHECKING:
    from kernel_tables.profile import Profile

ROWS_IN_A_TERMINAL = 40
CPU_ONLY_NOTE = "no GPU was used: a kernel is an outermost operator of PyTorch, and its time is CPU time"
GRAPHS_NOTE = (
    "replays of CUDA graphs were recorded as one activity each, without their kernels; nsys profile"
    " --cuda-graph-trace=node records these"
)


def time_heading(is_cpu_only: bool) -> str:
    """The heading of a column with the times of activities."""
    return "operators' time" if is_cpu_only else "GPU time"


# Columns


@dataclass(frozen=True)
class TextColumn:
    """A column of a table of texts, see aligned."""

    heading: str
    cells: Sequence[str]
    right: bool = True  # right-aligned, as numbers are; else left-aligned
    drop_rank: int = 0
    min_chars: int | None = None  # None: texts are not cut
    cut_start: bool = False  # texts are cut at the start, not at the end

    @property
    def width(self) -> int:
        return max(map(len, (self.heading, *self.cells)))

    @property
    def least_width(self) -> int:
        return self.width if self.min_chars is None else min(self.width, self.min_chars)


def aligned(columns: Sequence[TextColumn], width: int, note: str = "") -> str:
    """The columns with their headings as lines, not longer than `width` if texts can be cut and columns left out.

    Columns with a `drop_rank` above 5 are left out first, the highest one first; then texts are cut to `min_chars`;
    then other columns are left out, except those with `drop_rank` 0. If there is a `note`, it says so below.
    """
    columns, left_out = [replace(column, cells=list(map(visible, column.cells))) for column in columns], []

    def excess(widths: list[int]) -> int:
        return sum(widths) + 2 * (len(widths) - 1) - width

    for column in sorted(columns, key=lambda column: -column.drop_rank):
        widths = [one.width if column.drop_rank > 5 else one.least_width for one in columns]
        if not column.drop_rank or excess(widths) <= 0:
            break
        columns.remove(column)
        left_out.append(column.heading)
    widths, least = [column.width for column in columns], [column.least_width for column in columns]
    while excess(widths) > 0:  # the widest one whose texts may be cut is narrowed
        cuttable = [number for number in range(len(columns)) if widths[number] > least[number]]
        if not cuttable:
            break
        widths[max(cuttable, key=widths.__getitem__)] -= 1
    rows = zip(*((column.heading, *column.cells) for column in columns), strict=True)
    lines = ["  ".join(map(_in_width, columns, row, widths)).rstrip() for row in rows]
    lines += _wrapped(f"without {', '.join(left_out)}; {note}", width, "") if note and left_out else []
    return "".join(f"{line}\n" for line in lines)


def _in_width(column: TextColumn, text: str, width: int) -> str:
    text = cut(text, width, column.cut_start)
    return text.rjust(width) if column.right else text.ljust(width)


def cut(text: str, width: int, at_start: bool = False) -> str:
    """The text, with its end or start replaced by … if it is wider than this."""
    if len(text) <= width:
        return text
    return "…" + text[len(text) - width + 1 :] if at_start else text[: width - 1] + "…"


def table_lines(table, width: int) -> str:
    """Any table in this width. Columns of numbers that are all zero or missing are left out, except those of ranks,
    devices and steps. Then columns that do not fit are left out, processes and threads first, then the last ones."""

    def number(value: float | None, unit_ns: int) -> str:
        if value is None:
            return "–"
        if unit_ns:
            return duration(unit_ns * value)
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"

    columns, drop_ranks = [], {"rank": 0, "device": 0, "step": 0, "process": 101, "thread": 100}
    for name, values in columns_of(table).items():
        is_key = name in drop_ranks
        if is_key or any(isinstance(value, (str, bool)) for value in values):
            texts = ["–" if value is None else str(value) for value in values]
            columns.append(TextColumn(name, texts, is_key, drop_ranks.get(name, 0), None if is_key else 16))
        elif any(values):
            unit_ns = 1 if name.endswith("_ns") else 1000 if name.startswith("us_") else 0
            heading = name.removesuffix("_ns").removeprefix("us_")
            heading = f"{heading} time" if heading in drop_ranks else heading.replace("_", " ")
            columns.append(TextColumn(heading, [number(value, unit_ns) for value in values], drop_rank=len(columns)))
    return aligned(columns, width, note="--format csv prints all columns, to the nanosecond")


# Tables of ranges, kernels, classes and changes

# The columns of tables, also of a page: the heading, the column, its format, and drop_rank, min_chars and cut_start of
# TextColumn.
COLUMNS: dict[str, tuple[tuple, ...]] = {
    "ranges": (
        ("range", "range", "text", 0, 24), ("times", "instances", "count", 7), ("kernels", "kernels", "count", 2),
        ("GPU time", "total_ns", "time"), ("share", "total_ns", "share"), ("", "total_ns", "bar", 8),
        ("copies, fills", "memops", "some", 9),
    ),
    "kernels": (
        ("kernel", "kernel", "kernel", 0, 24), ("range", "range", "path", 1, 12, True),
        ("class", "class", "text", 6, 12), ("launches", "launches", "count", 2),
        ("GPU time", "total_ns", "time"), ("share", "total_ns", "share"), ("", "total_ns", "bar", 3),
        ("mean", "mean_ns", "time", 5), ("min", "min_ns", "time", 8), ("max", "max_ns", "time", 7),
    ),
    "classes": (
        ("class", "class", "text", 0, 24), ("kernels", "kernels", "count", 2), ("launches", "launches", "count", 1),
        ("GPU time", "total_ns", "time"), ("share", "total_ns", "share"), ("", "total_ns", "bar", 3),
        ("most time in", "largest_kernel", "kernel", 4, 24),
    ),
    "diff": (
        ("level", "level", "text"), ("name", "name", "text", 0, 20), ("change", "change", "text"),
        ("before", "before", "number", 0, 10), ("after", "after", "number", 0, 10), ("more", "ms_more", "ms", 3),
        ("ratio", "ratio", "ratio", 2), ("launches", "launches", "number", 1),
    ),
}  # fmt: skip


def declared_lines(
    name: str, rows: Mapping[str, Sequence], width: int, all_ns: int = 0, time: str = "GPU time", top: int | None = None
) -> str:
    """The first `top` rows in the columns of COLUMNS; empty columns are left out. Kernels have short names."""
    kernels = [text for _, key, kind, *_ in COLUMNS[name] if kind == "kernel" for text in rows[key]]
    formats = {
        "kernel": short_names(kernels).__getitem__, "path": lambda path: path or "(no range)", "count": "{:,}".format,
        "some": lambda count: f"{count:,}" if count else "", "time": duration, "ms": _ms, "ratio": "× {:.3g}".format,
        "share": lambda ns: percent(ns / (all_ns or 1)), "bar": lambda ns: bar(ns / (all_ns or 1), 12),
    }  # fmt: skip
    columns = []
    for heading, key, kind, *drop_rank_and_cut in COLUMNS[name]:
        texts = ["" if value is None else formats.get(kind, str)(value) for value in rows[key][:top]]
        heading, is_right = time if heading == "GPU time" else heading, kind not in ("text", "path", "kernel", "bar")
        columns += [TextColumn(heading, texts, is_right, *drop_rank_and_cut)] if any(texts) else []
    return aligned(columns, width)


def ranking_lines(
    name: str, profile: Profile, table, top: int, width: int, under: str | None = None, process: int | None = None
) -> str:
    """The first `top` rows (0: all) of a table "ranges", "kernels" or "classes" of the profile, and below them how many
    are left out, and what shows them."""
    rows, time, what = columns_of(table), time_heading(profile.is_cpu_only), name
    count, all_ns = len(next(iter(rows.values()))), _total_ns(profile, under, process)
    top = top if top > 0 else count
    if name == "ranges":
        rows["total_ns"] = list(map(sum, zip(rows["gpu_time_ns"], rows["memop_time_ns"], strict=True)))
    elif all_ns:
        what += f", {percent(sum(rows['total_ns'][top:]) / all_ns)} of the {time}"
    lines = declared_lines(name, rows, width, all_ns, time, top)
    return lines + _rest(count - top, what, width, "--top 0")


def tree_lines(
    profile: Profile, max_rows: int, width: int, under: str | None = None, process: int | None = None,
    all_rows_command: str = "--top 0",
) -> str:  # fmt: skip
    """The tree of ranges, cut to the `max_rows` longest ones (0: all), in the same form."""
    from kernel_tables.tree import longest, range_tree

    tree = range_tree(profile, under, process)
    nodes = longest(tree, max_rows)
    rows = {key: [getattr(node, key) for node in nodes] for key in ("instances", "kernels", "total_ns", "memops")}
    rows["range"] = ["  " * node.depth + cut(node.label, 60) for node in nodes]
    all_ns, time = _total_ns(profile, under, process), time_heading(profile.is_cpu_only)
    lines = declared_lines("ranges", rows, width, all_ns, time)
    return lines + _rest(len(tree) - len(nodes), "ranges", width, all_rows_command)


def _total_ns(profile: Profile, under: str | None, process: int | None) -> int:
    return int(sum(profile.table("classes", under, process)["total_ns"]))


def _rest(left_out: int, what: str, width: int, all_rows_command: str) -> str:
    return cut(f"{left_out:,} more {what}; {all_rows_command} shows all", width) + "\n" if left_out > 0 else ""


def bar(share: float, width: int) -> str:
    """A bar for a share of 1, of which this is the width, to an eighth of a character."""
    full, rest = divmod(round(8 * width * min(max(share, 0), 1)), 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[rest].strip()


# Findings, differences, names


def finding_lines(findings: list, width: int, time=None, noun: str = "kernels") -> str:
    """The `time` of a step (steps.StepTime), the findings in their order, and how many rules could not be checked.
    `noun` is Scope.noun."""
    lines = [*_wrapped(time.sentence, width, ""), ""] if time else []
    reported = [finding for finding in findings if not finding.abstained]
    for finding in reported:
        gain = f"at most {_ms(finding.gain_ms)} ({finding.gain_percent:.1f} %{time.percent_base if time else ''})"
        lines += [f"{finding.code}: {gain}, {finding.sure}", *_wrapped(finding.message, width)]
        if finding.where["ranges"]:
            kernels, short = finding.where["kernels"], short_names(finding.where["kernels"])
            lines += _wrapped("in " + "; ".join(f"{n} {_ms(ms)}" for n, ms in finding.where["ranges"].items()), width)
            listed = "; ".join(f"{short[name]} {_ms(ms)}" for name, ms in kernels.items())
            lines += _wrapped(f"{noun}: {listed}", width)
        lines += [*_wrapped(f"→ {finding.advice}", width), ""]
    lines += [] if reported else ["No rule finds anything."]
    if unchecked := len(findings) - len(reported):
        needs = "1 rule needs" if unchecked == 1 else f"{unchecked} rules need"
        lines += _wrapped(f"{needs} what this capture does not have; --format csv names them", width, "")
    return "\n".join(lines) + "\n"


def sentence_lines(sentences: Iterable[str], width: int) -> str:
    """Each sentence on lines of its own."""
    return "".join(f"{line}\n" for sentence in sentences for line in _wrapped(sentence, width, ""))


def change_lines(changes, tolerance: float, width: int) -> str:
    """One row per change, with times per step; and a line if nothing differs."""
    from kernel_tables import diff

    rows, verdict = columns_of(changes), ""
    if all(change == diff.SAME for change in rows["change"]):
        least = f"{100 * diff.MIN_SHARE:g} % of a step and {diff.STANDARD_ERRORS} standard errors"
        verdict = f"nothing differs: no time by more than {100 * tolerance:g} %, {least}\n"
    if not rows["level"]:
        return verdict
    kernels = short_names(name for level, name in zip(rows["level"], rows["name"], strict=True) if level == "kernel")
    rows["name"] = [kernels.get(name, name) for name in rows["name"]]
    for side in ("before", "after"):
        rows[side] = [fact if ms is None else _ms(ms) for fact, ms in zip(rows[side], rows[f"ms_{side}"], strict=True)]
    rows["launches"] = [
        None if old is None else " → ".join(dict.fromkeys((f"{old:,.4g}", f"{new:,.4g}")))
        for old, new in zip(rows["launches_before"], rows["launches_after"], strict=True)
    ]
    return declared_lines("diff", rows, width) + verdict + "times and launches are per step\n"


def _wrapped(text: str, width: int, indent: str = "    ") -> list[str]:
    indents = {"initial_indent": indent, "subsequent_indent": indent + "  " if indent else "    "}
    return textwrap.wrap(visible(text), max(width, 40), break_on_hyphens=False, **indents)


def _ms(ms: float | None) -> str:
    return "" if ms is None else duration(1e6 * ms)


# For programs that were recorded


def notebook_html(profile: Profile, step_name: str) -> str:
    """What a notebook shows: the tree of ranges, what is lost, the time of a step and three findings, as HTML without
    scripts."""
    from kernel_tables.check import losses
    from kernel_tables.diagnose import diagnose
    from kernel_tables.steps import Scope, step_time

    scope, width = Scope(profile, step_name), 110
    notes = [loss.message for loss in losses(profile, step_name)]
    notes += [CPU_ONLY_NOTE] if profile.is_cpu_only else []
    findings = [finding for finding in diagnose(scope) if not finding.abstained][:3]
    text = tree_lines(profile, 30, width, all_rows_command="profile().ranges(tree=True)")
    text += sentence_lines(notes, width) + finding_lines(findings, width, step_time(scope), scope.noun)
    return f"<pre>{escape(text)}</pre>"
