"""What people read in a terminal: tables in the width of it, findings and differences. Imports nothing heavy."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from kernel_tables.names import short_names
from kernel_tables.output import columns_of, duration, percent, visible

if TYPE_CHECKING:
    from kernel_tables.profile import Profile

ROWS_IN_A_TERMINAL = 40
CPU_ONLY_NOTE = "no GPU was used: a kernel is an outermost operator of PyTorch, and its time is CPU time"
# The columns of tables, also of a page: the heading, the column, and its kind. The last ones are left out first.
COLUMNS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "ranges": (
        ("range", "range", "text"), ("times", "instances", "count"), ("kernels", "kernels", "count"),
        ("GPU time", "total_ns", "time"), ("share", "total_ns", "share"), ("", "total_ns", "bar"),
        ("copies, fills", "memops", "some"),
    ),
    "kernels": (
        ("kernel", "kernel", "kernel"), ("range", "range", "path"), ("GPU time", "total_ns", "time"),
        ("share", "total_ns", "share"), ("launches", "launches", "count"), ("mean", "mean_ns", "time"),
        ("class", "class", "text"), ("min", "min_ns", "time"), ("max", "max_ns", "time"),
    ),
    "classes": (
        ("class", "class", "text"), ("kernels", "kernels", "count"), ("launches", "launches", "count"),
        ("GPU time", "total_ns", "time"), ("share", "total_ns", "share"), ("", "total_ns", "bar"),
        ("most time in", "largest_kernel", "kernel"),
    ),
    "diff": (
        ("level", "level", "text"), ("name", "name", "text"), ("change", "change", "text"),
        ("before", "before", "fact"), ("after", "after", "fact"), ("launches", "launches", "fact"),
        ("ratio", "ratio", "ratio"), ("more", "ms_more", "ms"),
    ),
}  # fmt: skip


def time_heading(is_cpu_only: bool) -> str:
    """The heading of a column with the times of activities."""
    return "operators' time" if is_cpu_only else "GPU time"


# Tables


class Column(NamedTuple):
    """A column of a table of texts, see aligned."""

    heading: str
    cells: list[str]
    kind: str  # of COLUMNS


def aligned(columns: Sequence[Column], width: int) -> str:
    """The columns with their headings as lines of at most `width`. The last columns are left out, and named below, if
    there is no room for them beside texts of a quarter of the width; longer texts are cut to what is left."""
    columns = [column._replace(cells=[column.heading, *map(visible, column.cells)]) for column in columns]
    widths = [max(map(len, column.cells)) for column in columns]
    is_cut = [column.kind in ("text", "path", "kernel", "fact") for column in columns]
    least = [min(one, width // 4) if cut_ else one for one, cut_ in zip(widths, is_cut, strict=True)]
    shown = len(columns)
    while shown > 1 and sum(least[:shown]) + 2 * (shown - 1) > width:
        shown -= 1
    for _ in range(sum(widths[:shown]) + 2 * (shown - 1) - width):  # where most is to spare, by one character
        widths[max(range(shown), key=lambda number: widths[number] - least[number])] -= 1
    rows = zip(*(column.cells for column in columns[:shown]), strict=True)
    lines = ["  ".join(map(_in_width, columns, row, widths)).rstrip() for row in rows]
    left_out = ", ".join(column.heading for column in columns[shown:] if column.heading)
    lines += _wrapped(f"without {left_out}; --format csv prints all columns", width, "") if left_out else []
    return "".join(f"{line}\n" for line in lines)


def _in_width(column: Column, text: str, width: int) -> str:
    text = cut(text, width, at_start=column.kind == "path")
    return text.ljust(width) if column.kind in ("text", "path", "kernel", "bar") else text.rjust(width)


def cut(text: str, width: int, at_start: bool = False) -> str:
    """The text, with its end or start replaced by … if it is wider than this."""
    if len(text) <= width:
        return text
    return "…" + text[len(text) - width + 1 :] if at_start else text[: width - 1] + "…"


def table_lines(table, width: int) -> str:
    """Any table in this width, with its processes and threads last. Columns of numbers that are all zero or missing are
    left out, except those of ranks, devices and steps."""
    rows, keys, columns = columns_of(table), ("rank", "device", "step"), []
    for name in sorted(rows, key=lambda name: name in ("process", "thread")):
        if name in (*keys, "process", "thread"):
            columns.append((name, name, "key"))
        elif any(isinstance(value, (str, bool)) for value in rows[name]):
            columns.append((name, name, "text"))
        elif any(rows[name]):
            kind = "time" if name.endswith("_ns") else "us" if name.startswith("us_") else "number"
            heading = name.removesuffix("_ns").removeprefix("us_").replace("_", " ")
            columns.append((f"{heading} time" if heading in keys else heading, name, kind))
    return declared_lines(columns, rows, width)


def declared_lines(
    columns: Sequence[tuple[str, str, str]], rows: Mapping[str, Sequence], width: int, all_ns: int = 0,
    time: str = "GPU time",
) -> str:  # fmt: skip
    """The rows in columns as COLUMNS has them, without empty ones; shares are of `all_ns`, `time` is a heading."""
    kernels = [text for _, key, kind in columns if kind == "kernel" for text in rows[key]]
    formats = {
        "kernel": short_names(kernels).__getitem__, "path": lambda path: path or "(no range)", "count": "{:,}".format,
        "some": lambda count: f"{count:,}" if count else "", "time": duration, "ms": _ms, "ratio": "× {:.3g}".format,
        "share": lambda ns: percent(ns / (all_ns or 1)), "bar": lambda ns: bar(ns / (all_ns or 1), 12),
        "number": lambda value: f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}",
        "us": lambda us: duration(1e3 * us),
    }  # fmt: skip
    made = []
    for heading, key, kind in columns:
        texts = ["" if value is None else formats.get(kind, str)(value) for value in rows[key]]
        made += [Column(time if heading == "GPU time" else heading, texts, kind)] if any(texts) else []
    return aligned(made, width)


def ranking_lines(
    name: str, profile: Profile, top: int, width: int, under: str | None = None, process: int | None = None
) -> str:
    """The first `top` rows (0: all) of the table "ranges", "kernels" or "classes", and how many are left out."""
    table = columns_of(profile.table(name, under, process))
    if name == "ranges":
        table["total_ns"] = list(map(sum, zip(table["gpu_time_ns"], table["memop_time_ns"], strict=True)))
    rows = {key: values[: top or None] for key, values in table.items()}
    return _longest_lines(name, profile, rows, len(table["total_ns"]), width, under, process)


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
    return _longest_lines("ranges", profile, rows, len(tree), width, under, process, all_rows_command)


def _longest_lines(
    name: str, profile: Profile, rows: Mapping[str, list], count: int, width: int, under: str | None,
    process: int | None, all_rows_command: str = "--top 0",
) -> str:  # fmt: skip
    """These of the `count` rows of a table as lines, and what is left out."""
    time, all_ns = time_heading(profile.is_cpu_only), int(sum(profile.table("classes", under, process)["total_ns"]))
    lines, left_out = declared_lines(COLUMNS[name], rows, width, all_ns, time), count - len(rows["total_ns"])
    if left_out <= 0:
        return lines
    left_ns = all_ns - sum(rows["total_ns"])
    share = "" if name == "ranges" else f", {percent(left_ns / (all_ns or 1))} of the {time}"
    return lines + cut(f"{left_out:,} more {name}{share}; {all_rows_command} shows all", width) + "\n"


def bar(share: float, width: int) -> str:
    """A bar for a share of 1, of which this is the width, to an eighth of a character."""
    full, rest = divmod(round(8 * width * min(max(share, 0), 1)), 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[rest].strip()


# Findings, differences, names


def finding_lines(findings: list, width: int, time=None, noun: str = "kernels") -> str:
    """The `time` of a step (StepTime), the findings, and how many rules could not be checked. `noun`: Scope.noun."""
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
    return declared_lines(COLUMNS["diff"], rows, width) + verdict + "times and launches are per step\n"


def _wrapped(text: str, width: int, indent: str = "    ") -> list[str]:
    indents = {"initial_indent": indent, "subsequent_indent": indent + "  " if indent else "    "}
    return textwrap.wrap(visible(text), max(width, 40), break_on_hyphens=False, **indents)


def _ms(ms: float | None) -> str:
    return "" if ms is None else duration(1e6 * ms)


# For programs that were recorded


def notebook_html(profile: Profile, step_name: str) -> str:
    """What a notebook shows, as HTML: the tree of ranges, what is lost, the time of a step and three findings."""
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
