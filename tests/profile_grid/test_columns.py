import re

import pandas as pd
import pytest

from profile_grid.documents.dictionary import dictionary
from profile_grid.documents.summaries import summary_tables
from profile_grid.files import write_table
from profile_grid.study.table_spec import FLOAT, INT, TEXT, WrongTable, columns
from profile_grid.tables.on_disk import TablesOnDisk, declared_tables
from tests.profile_grid.made_up import grid, merged


def test_a_summary_is_as_it_is_declared():
    for name, table in summary_tables(merged(grid())).items():
        declared_tables()[name].check(table)


STEPS = declared_tables()["steps"]
ROW = {column.name: {TEXT: "a", INT: 1, FLOAT: 0.5}[column.dtype] for column in STEPS.all_columns}


def test_a_table_as_declared_passes_also_without_rows_and_without_a_value():
    STEPS.check(pd.DataFrame([ROW]))
    STEPS.check(pd.DataFrame([ROW]).iloc[:0])
    STEPS.check(pd.DataFrame([ROW | {"step": None, "ms": None, "phase": None}]))
    STEPS.check(pd.DataFrame([ROW, ROW | {"step": None}]))  # pandas makes 1.0 of the 1 beside it
    STEPS.check(pd.DataFrame([ROW]).astype({"phase": "category"}))
    STEPS.check(STEPS.empty(), STEPS.names)


TWICE = "columns without a declaration, or twice"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda table: table.assign(new_ms=1), f"{TWICE}: new_ms; declared and missing: none"),
        (lambda table: pd.concat([table, table[["ms"]]], axis=1), f"{TWICE}: ms; declared and"),
        (lambda table: table.drop(columns="ms"), f"{TWICE}: none; declared and missing: ms"),
        (lambda table: table[["model", *table.columns.drop("model")]],
         r"column 0 \(from 0\) is expected to be run, found model"),
        (lambda table: table.assign(phase=3), "column phase is expected to be text, found int64 such as"),
        (lambda table: table.assign(ms="3"), "column ms is expected to be float, found str such as '3'"),
        (lambda table: table.assign(ms=True), "column ms is expected to be float, found bool such as"),
        (lambda table: table.assign(step=0.5), "column step is expected to be int, found float64 such as"),
        (lambda table: table.assign(phase=pd.Categorical([3])),
         "column phase is expected to be text, found category such as 3"),
    ],
)  # fmt: skip
def test_a_table_unlike_its_declaration_is_an_error_with_table_column_expected_and_found(changed, message):
    with pytest.raises(WrongTable, match=f"^table steps: {message}"):
        STEPS.check(changed(pd.DataFrame([ROW])))


def test_a_table_that_is_read_is_checked_as_far_as_it_is_asked_for(tmp_path):
    write_table(tmp_path / "steps", pd.DataFrame([ROW | {"ms": "3"}]))
    declared = {"steps": STEPS}
    assert len(TablesOnDisk(tmp_path, {"steps": ["run", "phase"]}, declared)["steps"]) == 1
    with pytest.raises(WrongTable, match="table steps: column ms is expected to be float"):
        TablesOnDisk(tmp_path, declared=declared)["steps"]


@pytest.mark.parametrize("line", ["ms | ms | a time", "ms | number | ms | a time", "ms"])
def test_a_line_that_declares_no_column_is_refused(line):
    with pytest.raises(ValueError, match="no column"):
        columns(line)


def test_the_dictionary_gives_column_unit_and_meaning_of_every_table():
    text = dictionary()
    assert "| `oom_free_bytes` | B | free memory of the GPU then" in re.sub(" +", " ", text)
    assert all(f"## {name}\n" in text for name in declared_tables())
    assert all(column.meaning for table in declared_tables().values() for column in table.columns)
