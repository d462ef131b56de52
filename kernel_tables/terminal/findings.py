"""The findings of `diagnose` and `check` as lines for a terminal."""

import textwrap
from collections.abc import Iterator, Mapping

import pandas as pd

from kernel_tables.clean_text import visible
from kernel_tables.diagnosis.diagnose import Diagnosis, silent_by_reason
from kernel_tables.diagnosis.step_time import StepTime
from kernel_tables.kernel_names.short import short_names

INDENT = "    "


def completeness_lines(table: pd.DataFrame, width: int) -> str:
    """The findings of `check`, from its table; or the line that there are none."""
    if table.empty:
        return "no problems found\n"
    lines = []
    for row in table.to_dict("records"):
        capture = f"{row['capture']}: " if row.get("capture") else ""
        lines += _wrapped(f"{capture}{row['severity']} {row['code']}: {row['message']}", width, "", INDENT)
    return "\n".join(lines) + "\n"


def finding_lines(findings: list[Diagnosis], width: int, time: StepTime | None = None, everything: bool = False) -> str:
    """The `time` of a step, and the findings, largest gain first; with `everything`, also the rules that could not be
    checked, by reason."""
    reported = [finding for finding in findings if not finding.abstained]
    lines = [*_wrapped(time.sentence, width, "", INDENT), ""] if time else []
    lines += [line for finding in reported for line in _finding(finding, width)] or ["No rule finds anything."]
    silent = silent_by_reason(findings)
    if everything:
        for reason, codes in silent.items():
            lines += _wrapped(f"not checked: {', '.join(codes)} ({reason})", width, "", INDENT)
    elif silent:
        lines += _wrapped(f"{unchecked(silent)}; --all names them", width, "", INDENT)
    return "\n".join(lines) + "\n"


def unchecked(silent: Mapping[str, list[str]]) -> str:
    """How many rules could not be checked, in words."""
    count = sum(map(len, silent.values()))
    return f"{count} rule{' needs' if count == 1 else 's need'} what this capture does not have"


def _finding(finding: Diagnosis, width: int) -> Iterator[str]:
    yield f"{finding.code}: at most {finding.gain_ms:.3g} ms ({finding.gain_percent:.1f} %), {finding.sure}"
    yield from _wrapped(finding.message, width)
    ranges, kernels = finding.where["ranges"], finding.where["kernels"]
    names = short_names(kernels)
    if ranges:
        yield from _wrapped(f"in {_listed(ranges)}", width)
        yield from _wrapped(f"kernels: {_listed({names[name]: ms for name, ms in kernels.items()})}", width)
    yield from _wrapped(f"→ {finding.advice}", width)
    yield ""


def _listed(ms_by_name: Mapping[str, float]) -> str:
    return "; ".join(f"{name} {ms:.3g} ms" for name, ms in ms_by_name.items())


def _wrapped(text: str, width: int, indent: str = INDENT, hanging: str = INDENT + "  ") -> list[str]:
    return textwrap.wrap(visible(text), max(width, 40), initial_indent=indent, subsequent_indent=hanging)
