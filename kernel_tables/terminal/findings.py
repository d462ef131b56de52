"""The findings of `diagnose` and `check`, and the changes of `diff`, as lines for a terminal; and what a notebook shows
of a capture: the time of a step, the tree of ranges, and findings."""

import textwrap
from collections.abc import Iterator, Mapping
from html import escape
from math import isnan

import pandas as pd

from kernel_tables import clean_text, comparison, units
from kernel_tables.diagnosis.diagnose import Diagnosis, abstained_by_reason, diagnose
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.diagnosis.step_time import StepTime, step_time
from kernel_tables.kernel_names.short import short_names
from kernel_tables.terminal.columns import TextColumn, aligned
from kernel_tables.terminal.tables import tree_lines
from kernel_tables.trace import Trace

INDENT = "    "
NOTHING_FOUND = "No rule finds anything."
MAX_ROWS, WIDTH, MAX_FINDINGS = 30, 110, 3  # in a notebook
ALL_ROWS_CALL = "trace().range_tree()"
MIN_NAME_CHARS, MIN_FACT_CHARS = 20, 10
KERNEL_LEVEL = "kernel"
UNITS_NOTE = "times and launches are per step"


def completeness_lines(table: pd.DataFrame, width: int) -> str:
    """The findings of `check`, from its table; or the line that there are none."""
    if table.empty:
        return "no problems found\n"
    lines = []
    for row in table.to_dict("records"):
        capture = f"{row['capture']}: " if row.get("capture") else ""
        lines += _wrapped(f"{capture}{row['severity']} {row['code']}: {row['message']}", width, "", INDENT)
    return "\n".join(lines) + "\n"


def finding_lines(
    findings: list[Diagnosis], width: int, time: StepTime | None = None, lists_unchecked: bool = False,
    noun: str = "kernels",
) -> str:  # fmt: skip
    """The `time` of a step, the findings in their order, and how many rules could not be checked. With
    `lists_unchecked`, these rules are listed by reason. `noun` is Scope.noun."""
    reported = [finding for finding in findings if not finding.abstained]
    lines = [*_wrapped(time.sentence, width, "", INDENT), ""] if time else []
    percent_base = time.percent_base if time else ""
    lines += [line for finding in reported for line in _finding(finding, width, noun, percent_base)] or [NOTHING_FOUND]
    unchecked = abstained_by_reason(findings)
    if lists_unchecked:
        for reason, codes in unchecked.items():
            lines += _wrapped(f"not checked: {', '.join(codes)} ({reason})", width, "", INDENT)
    elif unchecked:
        count = sum(map(len, unchecked.values()))
        needs = "1 rule needs" if count == 1 else f"{count} rules need"
        lines += _wrapped(f"{needs} what this capture does not have; --all names them", width, "", INDENT)
    return "\n".join(lines) + "\n"


def _finding(finding: Diagnosis, width: int, noun: str, percent_base: str) -> Iterator[str]:
    gain = f"at most {_time(finding.gain_ms)} ({finding.gain_percent:.1f} %{percent_base})"
    yield f"{finding.code}: {gain}, {finding.sure}"
    yield from _wrapped(finding.message, width)
    ranges, kernels = finding.where["ranges"], finding.where["kernels"]
    names = short_names(kernels)
    if ranges:
        yield from _wrapped(f"in {_listed(ranges)}", width)
        yield from _wrapped(f"{noun}: {_listed({names[name]: ms for name, ms in kernels.items()})}", width)
    yield from _wrapped(f"→ {finding.advice}", width)
    yield ""


def _listed(ms_by_name: Mapping[str, float]) -> str:
    return "; ".join(f"{name} {_time(ms)}" for name, ms in ms_by_name.items())


def _wrapped(text: str, width: int, indent: str = INDENT, hanging: str = INDENT + "  ") -> list[str]:
    return textwrap.wrap(clean_text.visible(text), max(width, 40), initial_indent=indent, subsequent_indent=hanging)


def notebook_html(trace: Trace, step_name: str) -> str:
    """The tree of ranges, the time of a step and findings as HTML without scripts."""
    scope = Scope(trace, step_name)
    time = step_time(scope)
    findings = [finding for finding in diagnose(scope) if not finding.abstained][:MAX_FINDINGS]
    notes = [units.CPU_ONLY_NOTE] if trace.is_cpu_only else []
    tree = clean_text.visible_lines(tree_lines(trace, MAX_ROWS, WIDTH, all_rows_command=ALL_ROWS_CALL))
    texts = [
        *([time.sentence] if time else []),
        *notes,
        *(finding.sentence(time.percent_base if time else "") for finding in findings),
    ]
    texts = [escape(clean_text.visible_lines(text[:1].upper() + text[1:])) for text in texts]
    return f"<pre>{escape(tree)}</pre>" + "".join(f"<p>{text}.</p>" for text in texts)


def change_lines(changes: pd.DataFrame, tolerance: float, width: int) -> str:
    """One row per change, with times per step; and a line if nothing differs."""
    is_same = (changes["change"] == comparison.SAME).all()
    verdict = (
        f"nothing differs: no time by more than {100 * tolerance:g} %, {100 * comparison.MIN_SHARE:g} % of a step and"
        f" {comparison.STANDARD_ERRORS} standard errors\n"
        if is_same
        else ""
    )
    if changes.empty:
        return verdict
    short = short_names(changes.loc[changes["level"] == KERNEL_LEVEL, "name"])
    is_fact = changes["change"] == comparison.FACT
    before, after = (changes[side].where(is_fact, changes[f"ms_{side}"].map(_time)) for side in ("before", "after"))
    launches = zip(changes["launches_before"], changes["launches_after"], strict=True)
    columns = [
        TextColumn("level", list(changes["level"]), right=False),
        TextColumn("name", [short.get(name, name) for name in changes["name"]], right=False, min_chars=MIN_NAME_CHARS),
        TextColumn("change", list(changes["change"]), right=False),
        TextColumn("before", list(before), min_chars=MIN_FACT_CHARS),
        TextColumn("after", list(after), min_chars=MIN_FACT_CHARS),
        TextColumn("more", [_time(ms) for ms in changes["ms_more"]], drop_rank=3),
        TextColumn("ratio", ["" if isnan(ratio) else f"× {ratio:.3g}" for ratio in changes["ratio"]], drop_rank=2),
        TextColumn("launches", ["" if isnan(old) else _launches(old, new) for old, new in launches], drop_rank=1),
    ]
    return aligned(columns, width) + verdict + f"{UNITS_NOTE}\n"


def _time(ms: float) -> str:
    return "" if isnan(ms) else units.duration(1e6 * ms)


def _launches(before: float, after: float) -> str:
    texts = f"{before:,.4g}", f"{after:,.4g}"
    return " → ".join(dict.fromkeys(texts))
