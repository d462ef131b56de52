"""What people read in a terminal: tables in the width of it, findings, differences, and the units of all of them.

`heading` is that of a column of times: GPU time, or operators' time on a processor. `all_ns` is the time of which
shares are taken. Imports nothing heavy.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from math import isnan
from typing import TYPE_CHECKING
from unicodedata import combining, east_asian_width

from kernel_tables.output import columns_of, duration, percent, visible

if TYPE_CHECKING:
    from kernel_tables.profile import Profile

ROWS_IN_A_TERMINAL = 40
GAP = "  "  # between columns
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
    `min_chars`; then other columns are dropped, except those with `drop_rank` 0. A text that would then look like
    another one is cut in the middle.
    """

    heading: str
    cells: Sequence[str]
    right: bool = True  # right-aligned, as numbers are; else left-aligned
    min_chars: int | None = None  # None: texts are not cut
    cut_start: bool = False  # texts are cut at the start, not at the end
    drop_rank: int = 0

    @property
    def width(self) -> int:
        return max(map(text_width, (self.heading, *self.cells)))

    @property
    def least_width(self) -> int:
        return self.width if self.min_chars is None else min(self.width, self.min_chars)

    def in_width(self, width: int) -> list[str]:
        """The heading and the cells, cut to this width if that is less, and filled up to it."""
        texts = [self.heading, *self.cells]
        short = {text: cut(text, width, self.cut_start) for text in texts}
        counts = Counter(short.values())
        for text, alike in short.items():
            if counts[alike] > 1 and text_width(text) > width:  # cut in the middle instead
                end = cut(text, (width + 1) // 2, at_start=True)
                short[text] = cut(text, width + 1 - text_width(end)).removesuffix("…") + end
        spaces = {text: " " * (width - text_width(shown)) for text, shown in short.items()}
        return [spaces[text] + short[text] if self.right else short[text] + spaces[text] for text in texts]


def text_width(text: str) -> int:
    """The width of a text in a terminal, where some characters are combined with others or take twice the room."""
    return sum(0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text)


def cut(text: str, width: int, at_start: bool = False) -> str:
    """The text, with its end or start replaced by … if it is wider than this."""
    if text_width(text) <= width:
        return text
    count, room = 0, width - 1  # how many characters stay, and the width that is left for more
    for character in reversed(text) if at_start else text:
        room -= text_width(character)
        if room < 0:
            break
        count += 1
    return "…" + text[len(text) - count :] if at_start else text[:count] + "…"


def aligned(columns: Sequence[TextColumn], width: int) -> str:
    """The columns with their headings as lines, not longer than `width` if texts can be cut and columns dropped."""
    columns = fitting([replace(column, cells=list(map(visible, column.cells))) for column in columns], width)
    widths = [column.width for column in columns]
    excess = sum(widths) + len(GAP) * (len(columns) - 1) - width
    while excess > 0:  # the widest one whose texts may be cut is narrowed
        cuttable = [i for i, column in enumerate(columns) if widths[i] > column.least_width]
        if not cuttable:
            break
        widths[max(cuttable, key=widths.__getitem__)] -= 1
        excess -= 1
    cells = [column.in_width(column_width) for column, column_width in zip(columns, widths, strict=True)]
    return "".join(f"{GAP.join(row).rstrip()}\n" for row in zip(*cells, strict=True))


def fitting(columns: Sequence[TextColumn], width: int) -> list[TextColumn]:
    """The columns that fit into this width, if necessary with cut texts."""
    columns = list(columns)
    while any(column.drop_rank for column in columns):
        candidate = max(columns, key=lambda column: column.drop_rank)
        widths = [column.width if candidate.drop_rank > 5 else column.least_width for column in columns]
        if sum(widths) + len(GAP) * (len(columns) - 1) <= width:
            break
        columns.remove(candidate)
    return columns


def table_lines(table, width: int) -> str:
    """Any table in this width. Columns of numbers that are all zero or missing are left out, except those of ranks,
    devices and steps. Then columns that do not fit are dropped, processes and threads first, then the last ones; a note
    below lists them."""
    keys, dispensable = ("rank", "device", "step"), {"process": 101, "thread": 100}

    def column(name: str, values: list, drop_rank: int) -> TextColumn:
        if is_text[name]:  # never dropped
            texts = ["–" if value is None else str(value) for value in values]
            return TextColumn(name, texts, right=False, min_chars=16)
        if name in dispensable or name in keys:
            return TextColumn(name, list(map(str, values)), drop_rank=dispensable.get(name, 0))
        numbers = [float("nan") if value is None else float(value) for value in values]
        heading, texts = name.replace("_", " "), list(map(number, numbers))
        if name.endswith("_ns"):
            heading = name.removesuffix("_ns")
            heading = f"{heading} time" if heading in keys else heading.replace("_", " ")
            texts = list(map(duration, numbers))
        elif name.startswith("us_"):
            heading, texts = name.removeprefix("us_").replace("_", " "), [duration(1e3 * us) for us in numbers]
        return TextColumn(heading, texts, drop_rank=drop_rank)

    def number(value: float) -> str:
        return "–" if isnan(value) else f"{value:,.0f}" if value.is_integer() else f"{value:,.4g}"

    values = columns_of(table)
    is_text = {name: any(isinstance(value, (str, bool)) for value in column) for name, column in values.items()}
    first_rank = 1 - sum(is_text.values())  # later columns have higher ranks
    columns = [
        column(name, values[name], rank)
        for rank, name in enumerate(values, start=first_rank)
        if name in keys or is_text[name] or any(values[name])
    ]
    kept = fitting(columns, width)
    dropped = [column.heading for column in columns if column not in kept]
    note = f"without {', '.join(dropped)}; --format csv prints all columns, to the nanosecond"
    return aligned(kept, width) + (textwrap.fill(note, width) + "\n" if dropped else "")


# Tables of ranges, kernels and classes


def range_lines(table, all_ns: int, width: int, heading: str) -> str:
    """The table of ranges."""
    rows = columns_of(table)
    times = [kernels + memops for kernels, memops in zip(rows["gpu_time_ns"], rows["memop_time_ns"], strict=True)]
    columns = [
        TextColumn("range", rows["range"], right=False, min_chars=24),
        _counts("times", rows["instances"], drop_rank=2),
        _counts("kernels", rows["kernels"], drop_rank=1),
        *_times(heading, times, all_ns),
        _counts("copies, fills", rows["memops"], drop_rank=4),
    ]
    return aligned(columns, width)


def tree_lines(
    profile: Profile, max_rows: int, width: int, under: str | None = None, process: int | None = None,
    all_rows_command: str = "--top 0",
) -> str:  # fmt: skip
    """The tree of ranges in about `max_rows` rows (0: all). A line below it says how many ranges are left out, and that
    `all_rows_command` shows them."""
    from kernel_tables.tree import RangeTree

    tree = RangeTree(profile, under, process)
    rows = tree.rows(max_rows)
    left_out = len(tree) - sum(row.range_count == 1 for row in rows)  # other rows are sums of smaller ranges
    all_ns = int(sum(profile.table("classes", under, process).columns["total_ns"]))
    heading, nodes = time_heading(profile.is_cpu_only), [row.node for row in rows]
    memops = [f"{node.memops:,}" if node.memops else "" for node in nodes]
    columns = [
        TextColumn("range", ["  " * row.depth + cut(row.label, 60) for row in rows], right=False, min_chars=24),
        TextColumn("times", ["" if node.instances is None else f"{node.instances:,}" for node in nodes], drop_rank=7),
        _counts("kernels", [node.kernels for node in nodes], drop_rank=2),
        *_times(heading, [node.ns for node in nodes], all_ns, bar_drop_rank=8),
        *([TextColumn("copies, fills", memops, drop_rank=9)] if any(memops) else []),
    ]
    return aligned(columns, width) + rest_line(left_out, "ranges", None, width, heading, all_rows_command)


def names_of(table) -> dict[str, str]:
    """The short names of the kernels in a table, all different."""
    from kernel_tables.names import short_names

    rows = columns_of(table)
    return short_names(rows["kernel" if "kernel" in rows and "range" in rows else "largest_kernel"])


def kernel_lines(table, all_ns: int, width: int, heading: str, short: Mapping[str, str]) -> str:
    """The kernels by range path, with their names in `short`. If `short` is empty, names are full, and are not cut."""
    rows = columns_of(table)
    columns = [
        _kernels("kernel", rows["kernel"], short),
        TextColumn("range", [path or "(no range)" for path in rows["range"]], False, 12, cut_start=True, drop_rank=1),
        TextColumn("class", rows["class"], right=False, min_chars=12, drop_rank=6),
        _counts("launches", rows["launches"], drop_rank=2),
        *_times(heading, rows["total_ns"], all_ns),
        TextColumn("mean", list(map(duration, rows["mean_ns"])), drop_rank=5),
        TextColumn("min", list(map(duration, rows["min_ns"])), drop_rank=8),
        TextColumn("max", list(map(duration, rows["max_ns"])), drop_rank=7),
    ]
    return aligned(columns, width)


def class_lines(table, all_ns: int, width: int, heading: str, short: Mapping[str, str]) -> str:
    """The classes of kernels, each with the kernel with the most time, whose name is in `short` as above."""
    rows = columns_of(table)
    columns = [
        TextColumn("class", rows["class"], right=False, min_chars=24),
        _counts("kernels", rows["kernels"], drop_rank=2),
        _counts("launches", rows["launches"], drop_rank=1),
        *_times(heading, rows["total_ns"], all_ns),
        _kernels("most time in", rows["largest_kernel"], short, drop_rank=4),
    ]
    return aligned(columns, width)


def rest_line(
    left_out: int, noun: str, share: float | None, width: int, heading: str, all_rows_command: str = "--top 0"
) -> str:
    """The line below a table on its left-out rows: how many `noun`, their `share` of the time if it is given, and what
    shows all. "" if there are none."""
    if not left_out:
        return ""
    share_text = "" if share is None else f", {percent(share)} of the {heading}"
    return cut(f"{left_out:,} more {noun}{share_text}; {all_rows_command} shows all", width) + "\n"


def _kernels(heading: str, names: Sequence[str], short: Mapping[str, str], drop_rank: int = 0) -> TextColumn:
    texts = [short.get(name, name) for name in names]
    return TextColumn(heading, texts, right=False, min_chars=24 if short else None, drop_rank=drop_rank)


def _times(heading: str, times: Sequence[float], all_ns: int, bar_drop_rank: int = 3) -> list[TextColumn]:
    """The columns of the times, of their shares of `all_ns`, and of these as bars."""
    shares = [time / all_ns if all_ns else 0.0 for time in times]
    bars = TextColumn("", [bar(share, 12) for share in shares], right=False, drop_rank=bar_drop_rank)
    return [TextColumn(heading, list(map(duration, times))), TextColumn("share", list(map(percent, shares))), bars]


def bar(share: float, width: int) -> str:
    """A bar for a share of 1, of which this is the width, to an eighth of a character."""
    full, rest = divmod(round(8 * width * min(max(share, 0), 1)), 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[rest].strip()


def _counts(heading: str, counts: Sequence[int], drop_rank: int) -> TextColumn:
    return TextColumn(heading, [f"{count:,}" for count in counts], drop_rank=drop_rank)


# Findings, differences, names


def finding_lines(findings: list, width: int, time=None, lists_unchecked: bool = False, noun: str = "kernels") -> str:
    """The `time` of a step (steps.StepTime), the findings in their order, and how many rules could not be checked.
    With `lists_unchecked`, these rules are listed by reason. `noun` is Scope.noun."""
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
    reasons: dict[str, list[str]] = {}
    for finding in findings:
        if finding.abstained:
            reasons.setdefault(finding.message, []).append(finding.code)
    if lists_unchecked:
        for reason, codes in reasons.items():
            lines += _wrapped(f"not checked: {', '.join(codes)} ({reason})", width, "")
    elif reasons:
        count = sum(map(len, reasons.values()))
        needs = "1 rule needs" if count == 1 else f"{count} rules need"
        lines += _wrapped(f"{needs} what this capture does not have; --all names them", width, "")
    return "\n".join(lines) + "\n"


def completeness_lines(columns: Mapping[str, list[str]], width: int) -> str:
    """The findings of `check`, from the columns of its table; or the line that there are none."""
    lines = []
    for row in zip(*columns.values(), strict=True):
        *capture, severity, code, message = row
        source = f"{capture[0]}: " if capture and capture[0] else ""
        lines += _wrapped(f"{source}{severity} {code}: {message}", width, "")
    return "\n".join(lines or ["no problems found"]) + "\n"


def change_lines(changes, tolerance: float, width: int) -> str:
    """One row per change, with times per step; and a line if nothing differs."""
    from kernel_tables import diff
    from kernel_tables.names import short_names

    rows = columns_of(changes)
    verdict = (
        f"nothing differs: no time by more than {100 * tolerance:g} %, {100 * diff.MIN_SHARE:g} % of a step and"
        f" {diff.STANDARD_ERRORS} standard errors\n"
        if all(change == diff.SAME for change in rows["change"])
        else ""
    )
    if not rows["level"]:
        return verdict
    is_fact, levels = [change == diff.FACT for change in rows["change"]], rows["level"]
    kernels = short_names(name for level, name in zip(levels, rows["name"], strict=True) if level == "kernel")

    def side(name: str) -> list[str]:
        pairs = zip(is_fact, rows[name], rows[f"ms_{name}"], strict=True)
        return [fact if of_fact else _ms(ms) for of_fact, fact, ms in pairs]

    launches = [
        "" if old is None else " → ".join(dict.fromkeys((f"{old:,.4g}", f"{new:,.4g}")))
        for old, new in zip(rows["launches_before"], rows["launches_after"], strict=True)
    ]
    columns = [
        TextColumn("level", levels, right=False),
        TextColumn("name", [kernels.get(name, name) for name in rows["name"]], right=False, min_chars=20),
        TextColumn("change", rows["change"], right=False),
        TextColumn("before", side("before"), min_chars=10),
        TextColumn("after", side("after"), min_chars=10),
        TextColumn("more", list(map(_ms, rows["ms_more"])), drop_rank=3),
        TextColumn("ratio", ["" if ratio is None else f"× {ratio:.3g}" for ratio in rows["ratio"]], drop_rank=2),
        TextColumn("launches", launches, drop_rank=1),
    ]
    return aligned(columns, width) + verdict + "times and launches are per step\n"


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
    return "" if ms is None or isnan(ms) else duration(1e6 * ms)


# For programs that were recorded


def notebook_html(profile: Profile, step_name: str) -> str:
    """What a notebook shows: the tree of ranges, the time of a step and three findings, as HTML without scripts."""
    from kernel_tables.diagnose import diagnose
    from kernel_tables.steps import Scope, step_time

    scope = Scope(profile, step_name)
    time = step_time(scope)
    findings = [finding for finding in diagnose(scope) if not finding.abstained][:3]
    tree = tree_lines(profile, 30, 110, all_rows_command="profile().ranges(tree=True)")
    texts = [time.sentence] if time else []
    texts += [CPU_ONLY_NOTE] if profile.is_cpu_only else []
    texts += [finding.sentence(time.percent_base if time else "") for finding in findings]
    texts = [escape(visible(text[:1].upper() + text[1:], keep_newlines=True)) for text in texts]
    return f"<pre>{escape(visible(tree, keep_newlines=True))}</pre>" + "".join(f"<p>{text}.</p>" for text in texts)


def communication_sentences(table, numbers: Mapping[int, int]) -> Iterator[str]:
    """A sentence for each rank and device of a table of `communication` that ran a collective, with the means over its
    steps. `numbers` are the numbers to print by rank in the table."""
    columns = columns_of(table)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for rank, device in sorted({(row["rank"], row["device"]) for row in rows}):
        steps = [row for row in rows if (row["rank"], row["device"]) == (rank, device)]
        if not any(row["collectives"] for row in steps):
            continue
        keys = ("communication_ns", "step_ns", "exposed_communication_ns")
        communication_ns, step_ns, exposed_ns = (sum(row[key] for row in steps) / len(steps) for key in keys)
        has_several_devices = len({row["device"] for row in rows if row["rank"] == rank}) > 1
        source = f"rank {numbers[rank]}" + (f", device {device}" if has_several_devices else "")
        text = (
            f"{source}: communication takes {duration(communication_ns)} of a step of {duration(step_ns)},"
            f" {duration(exposed_ns)} of it ({percent(exposed_ns / step_ns)} of the step) not overlapped by computation"
        )
        waiting = [row["waiting_ns"] for row in steps]
        if None not in waiting:
            text += f"; its collectives wait {duration(sum(waiting) / len(waiting))} for the slowest rank"
        yield text
