"""The table of findings of one run: what the rules of the diagnosis say of its capture, and which of them abstain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from kernel_tables.diagnosis.diagnose import as_table, diagnose
from kernel_tables.diagnosis.rules import OF_COUNTERS
from profile_grid.study.table_spec import TableSpec, columns
from profile_grid.tables.findings import OF_A_FINDING
from profile_grid.tables.names import STEP

if TYPE_CHECKING:
    from kernel_tables.diagnosis.diagnose import Diagnosis
    from kernel_tables.diagnosis.rules import Rule
    from kernel_tables.trace import Trace


def findings_of(trace: Trace, own_rules: Sequence[Rule] = ()) -> pd.DataFrame:
    """One row per rule that speaks, largest gain first, then one per rule that abstains; `own_rules` among them."""
    return findings_table(diagnose(trace, STEP, own_rules))


def findings_of_counters(trace: Trace, counters: pd.DataFrame) -> pd.DataFrame:
    """The same of the rules that need counters."""
    return findings_table(diagnose(trace, STEP, counters=counters, rules=OF_COUNTERS))


def findings_table(found: Iterable[Diagnosis]) -> pd.DataFrame:
    """These findings as the table of a run has them."""
    return as_table(list(found)).rename(columns={"where": "located"})[FINDINGS.names]


FINDINGS = TableSpec(
    "findings",
    "One row per run and finding of the diagnosis, and per rule that cannot tell; one that found nothing has none",
    columns(
        "code | text | | the rule; kernel_tables/README.md says what each looks for, and from where on it speaks",
        OF_A_FINDING,
        """
    evidence | text | | the numbers behind it, as JSON
    located | text | | ranges and kernels with the most of it, in ms of a step, and steps, as JSON
""",
    ),
)
