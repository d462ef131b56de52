"""The findings of the diagnosis: the table of one run, and what its columns mean there and in the question's table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from kernel_tables.diagnosis.diagnose import as_table, diagnose
from kernel_tables.diagnosis.rules import OF_COUNTERS
from profile_grid.study.described import Described, columns
from profile_grid.tables.names import STEP

if TYPE_CHECKING:
    from kernel_tables.diagnosis.diagnose import Diagnosis
    from kernel_tables.diagnosis.rules import Rule
    from kernel_tables.trace import Trace

COLUMNS = [
    "code", "abstained", "gain_ms", "gain_percent", "sure", "message", "advice", "evidence", "located",
]  # fmt: skip


OF_A_FINDING = columns("""
    abstained | | whether the rule cannot tell from this capture; then `message` says why
    gain_ms | ms | at most gained in a step as it was captured
    gain_percent | % | the same, of the time from the first to the last activity of the GPU
    sure | | certain (counted), likely (profiling adds to it), possible (the program has to tell)
    message | | what was found, in a sentence
    advice | | what to do
""")


def findings_of(trace: Trace, own_rules: Sequence[Rule] = ()) -> pd.DataFrame:
    """One row per rule that speaks, largest gain first, then one per rule that abstains; `own_rules` among them."""
    return findings_table(diagnose(trace, STEP, own_rules))


def findings_of_counters(trace: Trace, counters: pd.DataFrame) -> pd.DataFrame:
    """The same of the rules that need counters."""
    return findings_table(diagnose(trace, STEP, counters=counters, rules=OF_COUNTERS))


def findings_table(found: Iterable[Diagnosis]) -> pd.DataFrame:
    """These findings as the table of a run has them."""
    return as_table(list(found)).rename(columns={"where": "located"})[COLUMNS]


DESCRIBED = Described(
    "One row per run and finding of the diagnosis, and per rule that cannot tell; one that found nothing has none",
    (
        *columns("code | | the rule; docs/finding-codes.md has its meaning and threshold"),
        *OF_A_FINDING,
        *columns("""
    evidence | | the numbers behind it, as JSON
    located | | ranges and kernels with the most of it, in ms of a step, and steps, as JSON
"""),
    ),
)
