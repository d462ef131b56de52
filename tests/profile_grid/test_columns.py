import re

import pandas as pd
import pytest

from profile_grid.documents.dictionary import UndocumentedColumn, check_documented, described, dictionary
from profile_grid.documents.summaries import summary_tables
from profile_grid.documents.table_documents import LONGEST, table_document, table_documents
from profile_grid.stages.capture import step_tables as run_tables
from profile_grid.study.described import LEADING_COLUMNS
from profile_grid.tables import findings
from tests.profile_grid.made_up import grid, merged


def test_every_column_of_a_summary_is_in_the_dictionary_and_no_other():
    for name, table in summary_tables(merged(grid())).items():
        check_documented(name, table)


def test_every_column_of_the_per_run_tables_is_in_the_dictionary():
    columns = {
        "kernels": run_tables.KERNEL_COLUMNS,
        "phases": run_tables.PHASE_COLUMNS,
        "ranges": run_tables.RANGE_COLUMNS,
        "findings": findings.COLUMNS,
    }
    for name, own in columns.items():
        assert [column.name for column in described()[name].columns] == own


def test_a_column_that_nobody_described_is_an_error_that_names_it():
    table = pd.DataFrame(
        columns=[*(column.name for column in (*LEADING_COLUMNS, *described()["steps"].columns)), "new_ms"]
    )
    with pytest.raises(
        UndocumentedColumn, match="steps: columns without a description: new_ms; described but not there: none"
    ):
        check_documented("steps", table)


def test_the_dictionary_gives_column_unit_and_meaning_of_every_table():
    text = dictionary()
    assert "| `oom_free_bytes` | B | what the GPU had free then" in re.sub(" +", " ", text)
    assert all(f"## {name}\n" in text for name in described())
    assert all(column.meaning for table in described().values() for column in table.columns)


def test_a_table_document_has_units_in_its_headings_and_dashes_for_what_is_missing():
    table = pd.DataFrame(
        {"run": ["r"], "model": ["m"], "context_length": [128], "mode": ["forward"], "phase": ["step"], "n": [0],
         "mean_ms": [None], "std_ms": [0.0123456], "min_ms": [4.0], "max_ms": [5123.456], "status": ["incomplete"]}
    ).astype({"mean_ms": "float64"})  # fmt: skip
    heading, _, row = table_document("timings", table).split("\n\n")[1].splitlines()
    assert [cell.strip() for cell in heading.split("|")[1:-1]] == [
        "run", "model", "mode", "phase", "status", "context_length, tokens", "n", "mean_ms", "std_ms",
        "min_ms", "max_ms",
    ]  # fmt: skip
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells == ["r", "m", "forward", "step", "incomplete", "128", "0", "–", "0.01235", "4", "5123"]


def test_a_long_table_comes_as_one_document_per_run():
    kernels = merged(grid())["kernels"]
    assert [path for path, _ in table_documents("kernels", kernels)] == ["kernels"]
    longer = pd.concat([kernels] * (1 + LONGEST // len(kernels)))
    assert [path for path, _ in table_documents("kernels", longer)] == [
        f"kernels/{run}" for run in kernels["run"].unique()
    ]
