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
    """A column of a table of texts.

    If there is no room, columns with a `drop_rank` above 5 are dropped, the highest first; then texts are cut to
    `min_chars`; then other columns are dropped, except those with `drop_rank` 0.
    """

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

    def in_width(self, width: int) -> list[str]:
        """The heading and the cells, cut to this width if that is less, and filled up to it."""
        short = [cut(text, width, self.cut_start) for text in (self.heading, *self.cells)]
        return [text.rjust(width) if self.right else text.ljust(width) for text in short]


def cut(text: str, width: int, at_start: bool = False) -> str:
    """The text, with its end or start replaced by … if it is wider than this."""
    if len(text) <= width:
        return text
    return "…" + text[len(text) - width + 1 :] if at_start else text[: width - 1] + "…"


def aligned(columns: Sequence[TextColumn], width: int) -> str:
    """The columns with their headings as lines, not longer than `width` if texts can be cut and columns dropped."""
    columns = fitting([replace(column, cells=list(map(visible, column.cells))) for column in columns], width)
    widths = [column.width for column in columns]
    excess = sum(widths) + 2 * (len(columns) - 1) - width
    while excess > 0:  # the widest one whose texts may be cut is narrowed
        cuttable = [i for i, column in enumerate(columns) if widths[i] > column.least_width]
        if not cuttable:
            break
        widths[max(cuttable, key=widths.__getitem__)] -= 1
        excess -= 1
    cells = [column.in_width(column_width) for column, column_width in zip(columns, widths, strict=True)]
    return "".join("  ".join(row).rstrip() + "\n" for row in zip(*cells, strict=True))


def fitting(columns: Sequence[TextColumn], width: int) -> list[TextColumn]:
    """The columns that fit into this width, if necessary with cut texts."""
    columns = list(columns)
    while any(column.drop_rank for column in columns):
        candidate = max(columns, key=lambda column: column.drop_rank)
        widths = [column.width if candidate.drop_rank > 5 else column.least_width for column in columns]
        if sum(widths) + 2 * (len(columns) - 1) <= width:
            break
        columns.remove(candidate)
    return columns


def table_lines(table, width: int) -> str:
    """Any table in this width. Columns of numbers that are all zero or missing are left out, except those of ranks,
    devices and steps. Then columns that do not fit are dropped, processes and threads first, then the last ones; a note
    below lists them."""
    keys, first_dropped = ("rank", "device", "step"), {"process": 101, "thread": 100}

    def number(value: float, unit_ns: int) -> str:
        if value is None:
            return "–"
        if unit_ns:
            return duration(unit_ns * value)
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"

    columns, rank = [], 0
    for name, values in columns_of(table).items():
        if any(isinstance(value, (str, bool)) for value in values):
            texts = ["–" if value is None else str(value) for value in values]
            columns.append(TextColumn(name, texts, right=False, min_chars=16))
            continue
        rank += 1
        if name in keys or name in first_dropped:
            columns.append(TextColumn(name, list(map(str, values)), drop_rank=first_dropped.get(name, 0)))
        elif any(values):
            unit_ns = 1 if name.endswith("_ns") else 1000 if name.startswith("us_") else 0
            heading = name.removesuffix("_ns").removeprefix("us_")
            heading = f"{heading} time" if heading in keys else heading.replace("_", " ")
            columns.append(TextColumn(heading, [number(value, unit_ns) for value in values], drop_rank=rank))
    kept = fitting(columns, width)
    dropped = [column.heading for column in columns if column not in kept]
    note = f"without {', '.join(dropped)}; --format csv prints all columns, to the nanosecond"
    return aligned(kept, width) + (textwrap.fill(note, width) + "\n" if dropped else "")


# Tables of ranges, kernels, classes and changes

# The columns of tables: the heading, the column, its format, and drop_rank, min_chars and cut_start of TextColumn.
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
        ("level", "level", "text"), ("name", "name", "kernel", 0, 20), ("change", "change", "text"),
        ("before", "before", "number", 0, 10), ("after", "after", "number", 0, 10), ("more", "ms_more", "ms", 3),
        ("ratio", "ratio", "ratio", 2), ("launches", "launches", "number", 1),
    ),
}  # fmt: skip


def declared_lines(
    name: str, rows: Mapping[str, Sequence], width: int, all_ns: int = 0, time: str = "GPU time",
    short: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """The rows in the columns of COLUMNS; empty columns are left out. Kernels have their names in
    `short`; without it, their names are full, and are not cut."""
    formats = {
        "kernel": lambda name: short.get(name, name) if short else name, "path": lambda path: path or "(no range)",
        "count": "{:,}".format, "some": lambda count: f"{count:,}" if count else "", "time": duration,
        "share": lambda ns: percent(ns / (all_ns or 1)), "bar": lambda ns: bar(ns / (all_ns or 1), 12),
        "ms": _ms, "ratio": "× {:.3g}".format,
    }  # fmt: skip
    columns = []
    for heading, key, kind, *drop_rank_and_cut in COLUMNS[name]:
        texts = ["" if value is None else formats.get(kind, str)(value) for value in rows[key]]
        column = TextColumn(heading, texts, kind not in ("text", "path", "kernel", "bar"), *drop_rank_and_cut)
        if heading == "GPU time":
            column = replace(column, heading=time)
        if kind == "kernel" and short is None:
            column = replace(column, min_chars=None)
        if any(texts):
            columns.append(column)
    return aligned(columns, width)


def ranking_lines(
    name: str, profile: Profile, table, top: int, width: int, under: str | None = None, process: int | None = None,
    full: bool = False, all_rows_command: str = "--top 0",
) -> str:  # fmt: skip
    """The first `top` rows (0: all) of a table "ranges", "kernels" or "classes" of the profile, and below them how many
    are left out, and what shows them."""
    rows, time = columns_of(table), time_heading(profile.is_cpu_only)
    all_ns = int(sum(profile.table("classes", under, process).columns["total_ns"]))
    short, rest = None, ""
    if name == "ranges":
        rows["total_ns"] = list(map(sum, zip(rows["gpu_time_ns"], rows["memop_time_ns"], strict=True)))
    elif not full:
        from kernel_tables.names import short_names

        short = short_names(rows["kernel" if name == "kernels" else "largest_kernel"])
    left_out = len(table) - top if top > 0 else 0
    if name != "ranges" and all_ns:
        rest = f", {percent(sum(rows['total_ns'][top:]) / all_ns)} of the {time}"
    shown = {key: values[: top if top > 0 else None] for key, values in rows.items()}
    lines = declared_lines(name, shown, width, all_ns, time, short)
    return lines + _rest(left_out, name + rest, width, all_rows_command)


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
    all_ns = int(sum(profile.table("classes", under, process).columns["total_ns"]))
    lines = declared_lines("ranges", rows, width, all_ns, time_heading(profile.is_cpu_only))
    return lines + _rest(len(tree) - len(nodes), "ranges", width, all_rows_command)


def _rest(left_out: int, what: str, width: int, all_rows_command: str) -> str:
    return cut(f"{left_out:,} more {what}; {all_rows_command} shows all", width) + "\n" if left_out > 0 else ""


def bar(share: float, width: int) -> str:
    """A bar for a share of 1, of which this is the width, to an eighth of a character."""
    full, rest = divmod(round(8 * width * min(max(share, 0), 1)), 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[rest].strip()


# Findings, differences, names


def finding_lines(findings: list, width: int, time=None, lists_unchecked: bool = False, noun: str = "kernels") -> str:
    """The `time` of a step (steps.StepTime), the findings in their order, and how many rules could not be checked.
    With `lists_unchecked`, these rules are listed by reason. `noun` is Scope.noun."""
    from kernel_tables.diagnose import abstained_by_reason
    from kernel_tables.names import short_names

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
    unchecked = abstained_by_reason(findings)
    if lists_unchecked:
        for reason, codes in unchecked.items():
            lines += _wrapped(f"not checked: {', '.join(codes)} ({reason})", width, "")
    elif unchecked:
        count = sum(map(len, unchecked.values()))
        needs = "1 rule needs" if count == 1 else f"{count} rules need"
        lines += _wrapped(f"{needs} what this capture does not have; --all names them", width, "")
    return "\n".join(lines) + "\n"


def check_lines(rows: Iterable[tuple[str, ...]], width: int) -> str:
    """Findings of `check`: rows of severity, code and message, or of these after the capture's name."""
    lines = []
    for *capture, severity, code, message in rows:
        source = f"{capture[0]}: " if capture and capture[0] else ""
        lines += _wrapped(f"{source}{severity} {code}: {message}", width, "")
    return "".join(f"{line}\n" for line in lines)


def change_lines(changes, tolerance: float, width: int) -> str:
    """One row per change, with times per step; and a line if nothing differs."""
    from kernel_tables import diff
    from kernel_tables.names import short_names

    rows, verdict = columns_of(changes), ""
    if all(change == diff.SAME for change in rows["change"]):
        least = f"{100 * diff.MIN_SHARE:g} % of a step and {diff.STANDARD_ERRORS} standard errors"
        verdict = f"nothing differs: no time by more than {100 * tolerance:g} %, {least}\n"
    if not rows["level"]:
        return verdict
    is_fact = [change == diff.FACT for change in rows["change"]]
    for side in ("before", "after"):
        pairs = zip(is_fact, rows[side], rows[f"ms_{side}"], strict=True)
        rows[side] = [fact if of_fact else _ms(ms) for of_fact, fact, ms in pairs]
    rows["launches"] = [
        None if old is None else " → ".join(dict.fromkeys((f"{old:,.4g}", f"{new:,.4g}")))
        for old, new in zip(rows["launches_before"], rows["launches_after"], strict=True)
    ]
    kernels = short_names(name for level, name in zip(rows["level"], rows["name"], strict=True) if level == "kernel")
    return declared_lines("diff", rows, width, short=kernels) + verdict + "times and launches are per step\n"


def fact_lines(facts: Iterable[tuple[str, str, str]], width: int) -> str:
    """The facts on the name of a kernel, each with its reason indented below it."""
    lines = []
    for about, *texts in facts:
        wrapped = [textwrap.wrap(visible(text), max(width - 12, 30), break_on_hyphens=False) or [""] for text in texts]
        first, *more = [line for part in wrapped for line in part]
        lines += [f"{about:<10}  {first}", *(" " * 12 + line for line in more)]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, width: int, indent: str = "    ") -> list[str]:
    hanging = indent + "  " if indent else "    "
    return textwrap.wrap(visible(text), max(width, 40), initial_indent=indent, subsequent_indent=hanging)


def _ms(ms: float | None) -> str:
    return "" if ms is None else duration(1e6 * ms)


# For programs that were recorded


def notebook_html(profile: Profile, step_name: str) -> str:
    """What a notebook shows: the tree of ranges, what is lost, the time of a step and three findings, as HTML without
    scripts."""
    from kernel_tables.check import losses
    from kernel_tables.diagnose import diagnose
    from kernel_tables.steps import Scope, step_time

    scope = Scope(profile, step_name)
    time = step_time(scope)
    findings = [finding for finding in diagnose(scope) if not finding.abstained][:3]
    tree = tree_lines(profile, 30, 110, all_rows_command="profile().ranges(tree=True)")
    texts = [loss.message for loss in losses(profile, step_name)]
    texts += [time.sentence] if time else []
    texts += [CPU_ONLY_NOTE] if profile.is_cpu_only else []
    texts += [finding.sentence(time.percent_base if time else "") for finding in findings]
    texts = [escape(visible(text[:1].upper() + text[1:], keep_newlines=True)) for text in texts]
    return f"<pre>{escape(visible(tree, keep_newlines=True))}</pre>" + "".join(f"<p>{text}.</p>" for text in texts)
