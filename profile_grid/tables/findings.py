"""The table of the findings of one run's diagnosis, and what its columns mean."""

from collections.abc import Iterable

import pandas as pd

from kernel_tables.diagnosis.diagnose import Diagnosis, as_table
from profile_grid.study.table_spec import TableSpec, columns

GAIN_COLUMNS = columns("""
    abstained | bool | | whether the rule lacks data in this capture; `message` says which
    gain_ms | float | ms | at most gained in a step as it was captured
    gain_percent | float | % | the same, of the time from the first to the last activity of the GPU
""")
WORDING_COLUMNS = columns("""
    sure | text | | certain (counted), likely (profiling adds to it), possible (only a change of the program can \
        show it)
    message | text | | what was found, in a sentence
    advice | text | | what to do
""")
FINDING_COLUMNS = columns(GAIN_COLUMNS, WORDING_COLUMNS)


def findings_table(diagnoses: Iterable[Diagnosis]) -> pd.DataFrame:
    """The table of a run: its findings, the largest gain first, then a row per rule that abstains."""
    return as_table(list(diagnoses)).rename(columns={"where": "located"})[FINDINGS.names]


FINDINGS = TableSpec(
    "findings",
    "One row per run and finding of the diagnosis, and per rule that lacks data; a rule that found nothing has no row",
    columns(
        "code | text | | the rule; docs/finding-codes.md has its meaning and threshold",
        FINDING_COLUMNS,
        """
    evidence | text | | the numbers behind it, as JSON
    located | text | | ranges and kernels with the most of it, in ms of a step, and steps, as JSON
""",
    ),
)
