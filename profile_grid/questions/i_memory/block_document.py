"""What the document of (i) says about one block, and about types."""

from collections.abc import Sequence

import pandas as pd

from kernel_tables import units
from kernel_tables.markdown import MarkdownTable, code, escaped
from profile_grid.quantities import ABSENT, interval, known, memory, percent
from profile_grid.study.dimensions import CHECKPOINT, MODE, PRECISION
from profile_grid.tables.cells import columns_with_values, rows_table
from profile_grid.tables.gains import LEADING_KEYS
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD

MAX_OPERATIONS = 5
CALLER_COLUMNS = ("operator", "line")  # the operator that called the allocator, and the line that called the operator
BLOCK_HEADINGS = {
    "saved_bytes": "one block keeps",
    "gradient_bytes": "its gradients",
    "backward_change_bytes": "change in its backward pass",
    "residual_bytes": "residual activation",
}


def block_sentence(measured: Measured) -> str:
    """A sentence on what one block keeps without checkpoints, and its gradients; "" if neither is known."""
    rows = measured.tables["memory_block"]
    is_default = rows[CHECKPOINT.key] == CHECKPOINT.default
    subject = "One block" if is_default.all() else "Without checkpoints, one block"
    rows = rows[is_default]
    saved, gradients = rows["saved_bytes"].dropna(), rows["gradient_bytes"].dropna()
    texts = [f"keeps {interval(saved, memory)}"] if len(saved) else []
    texts += [f"has gradients of {interval(gradients, memory)}"] if len(gradients) else []
    return f"{subject} {' and '.join(texts)}." if texts else ""


def block_table(measured: Measured) -> MarkdownTable:
    """(i) One line per run: bytes of one block."""
    rows = measured.tables["memory_block"]
    return rows_table(rows, LEADING_KEYS, columns_with_values(rows, BLOCK_HEADINGS, size))


def operations_table(rows: pd.DataFrame) -> MarkdownTable:
    """(i) One line for each of the operations that keep the most bytes in one run's block, and one for all others."""
    largest, rest = rows.head(MAX_OPERATIONS), rows.iloc[MAX_OPERATIONS:]
    lines = [
        (escaped(row["part"]), *caller_cells(row), size(row["bytes"]), percent(row["share"]))
        for row in largest.to_dict("records")
    ]
    if len(rest):
        lines.append((f"{len(rest)} others", ABSENT, ABSENT, size(rest["bytes"].sum()), percent(rest["share"].sum())))
    return MarkdownTable(("part", *CALLER_COLUMNS, "keeps", "share"), tuple(lines), first_right=3)


def caller_cells(row: dict, columns: Sequence[str] = CALLER_COLUMNS) -> tuple[str, ...]:
    """The cells of CALLER_COLUMNS, or of some of them, in Markdown."""
    return tuple(code(row[name], in_table=True) if known(row[name]) and row[name] else ABSENT for name in columns)


def run_per_precision(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of one run per precision: of the first run with a backward pass, or of the first if none has one."""
    backward_first = rows.assign(is_forward=rows[MODE.key] == FORWARD).sort_values("is_forward", kind="stable")
    return rows[rows["run"].isin(backward_first.drop_duplicates(PRECISION.key)["run"])]


def dtypes_table(rows: pd.DataFrame) -> MarkdownTable:
    """(i) One line per module of one run: the types of its parameters, output and gradients, as far as known."""
    columns = [name for name in ("parameters", "output", "gradients") if (rows[name] != "").any()]
    lines = [
        (code(row["module"], in_table=True), str(row["modules"]), *(escaped(row[name]) or ABSENT for name in columns))
        for row in rows.to_dict("records")
    ]
    return MarkdownTable(("module", "number", *columns), tuple(lines), first_right=2 + len(columns))


def size(bytes_: float) -> str:
    """A size with three significant digits and its unit; the change in a backward pass may be negative."""
    if not known(bytes_):
        return ABSENT
    return ("−" if bytes_ < 0 else "") + units.size(abs(bytes_)) if bytes_ else "0"
