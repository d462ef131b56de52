"""What the document of (i) says about one block, and about types."""

from collections.abc import Sequence

import pandas as pd

from kernel_tables import units
from kernel_tables.markdown import MarkdownTable, code, escaped
from profile_grid.quantities import ABSENT, interval, known, memory, percent
from profile_grid.study.dimensions import CHECKPOINT, MODE, PRECISION
from profile_grid.tables.cells import lines_table
from profile_grid.tables.gains import LEADING_KEYS
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD
from profile_grid.tables.wording import capital, run_in_words, varying

LARGEST_OPERATIONS = 5
MAKERS = ("operator", "line")  # of an allocation
OF_A_BLOCK = {
    "saved_bytes": "one block keeps",
    "estimated_saved_bytes": "predicted",
    "gradient_bytes": "its gradients",
    "estimated_gradient_bytes": "predicted",
    "backward_change_bytes": "change in its backward pass",
    "residual_bytes": "residual activation",
    "estimated_residual_bytes": "predicted",
}


def of_a_block(measured: Measured) -> str:
    """A sentence on what one block keeps without checkpoints, and on its gradients; empty if no block is known."""
    rows = measured.tables["memory_block"]
    plain = rows[CHECKPOINT.key] == CHECKPOINT.default
    without, rows = ("" if plain.all() else "Without checkpoints, "), rows[plain]
    kept, gradients = rows["saved_bytes"].dropna(), rows["gradient_bytes"].dropna()
    texts = [f"keeps {interval(kept, memory)}"] if len(kept) else []
    texts += [f"has gradients of {interval(gradients, memory)}"] if len(gradients) else []
    return f" {capital(f'{without}one block')} {' and '.join(texts)}." if texts else ""


def block_table(measured: Measured) -> MarkdownTable:
    """(i) One line per run: bytes of one block."""
    rows = measured.tables["memory_block"]
    names = [name for name in OF_A_BLOCK if rows[name].notna().any()]
    headings = [OF_A_BLOCK[name] for name in names]
    return lines_table(rows, (*LEADING_KEYS, MODE.key), headings, lambda row: [_mib(row[name]) for name in names])


def operations_tables(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """(i) (run, table) of the run whose block keeps the most: its largest operations."""
    rows = measured.tables["memory_operations"]
    if rows.empty:
        return []
    name = rows.groupby("run", sort=False)["bytes"].sum().idxmax()
    its_rows = rows[rows["run"] == name]
    largest, rest = its_rows.head(LARGEST_OPERATIONS), its_rows.iloc[LARGEST_OPERATIONS:]
    lines = [
        (
            escaped(row["part"]), *maker_cells(row), _mib(row["bytes"]), percent(row["share"]),
        )
        for row in largest.to_dict("records")
    ]  # fmt: skip
    if len(rest):
        lines.append((f"{len(rest)} others", ABSENT, ABSENT, _mib(rest["bytes"].sum()), percent(rest["share"].sum())))
    headings = ("part", *MAKERS, "keeps", "share")
    return [(run_in_words(its_rows.iloc[0], varying(rows)), MarkdownTable(headings, tuple(lines), first_right=3))]


def maker_cells(row: dict, makers: Sequence[str] = MAKERS) -> tuple[str, ...]:
    """The operator that allocated and the line that called it, in Markdown."""
    return tuple(code(row[key], in_table=True) if known(row[key]) and row[key] else ABSENT for key in makers)


def dtypes_tables(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """(i) (run, table) of one run per precision, if possible with a backward pass: the types of each module."""
    rows = measured.tables["dtypes"]
    in_order = rows.assign(is_forward=rows[MODE.key] == FORWARD).sort_values("is_forward", kind="stable")
    names = in_order.drop_duplicates(PRECISION.key)["run"]
    of_runs = [run_rows for name, run_rows in rows.groupby("run", sort=False) if name in set(names)]
    return [(run_in_words(run_rows.iloc[0], varying(rows)), _dtypes_table(run_rows)) for run_rows in of_runs]


def _dtypes_table(rows: pd.DataFrame) -> MarkdownTable:
    kinds = [name for name in ("parameters", "output", "gradients") if (rows[name] != "").any()]
    lines = [
        (code(row["module"], in_table=True), str(row["modules"]), *(escaped(row[kind]) or ABSENT for kind in kinds))
        for row in rows.to_dict("records")
    ]
    return MarkdownTable(("module", "number", *kinds), tuple(lines), first_right=5)


def _mib(bytes_: float) -> str:
    """A size, with its sign if it is negative."""
    if not known(bytes_):
        return ABSENT
    sign = "−" if bytes_ < 0 else ""
    return sign + units.size(abs(bytes_)) if bytes_ else "0"
