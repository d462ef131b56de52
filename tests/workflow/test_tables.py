"""Tables on disk: what is written is what is declared, and what is read has the declared types."""

import re

import pandas as pd
import pyarrow.parquet as pq
import pytest

from workflow import tables
from workflow.tables import KEYS, WrongTable, make_table, read_table, read_tables, write_table

STEP = {"phase": "forward", "step": 0, "ms": 1.5}


def a_run(**values):
    numbers = dict.fromkeys(("context_length", "batch_size", "gpus"), 1)
    return {key: numbers.get(key, "0") for key in KEYS} | values


def test_a_table_is_written_as_parquet_with_units_and_as_csv_in_the_declared_order(tmp_path):
    frame = pd.DataFrame([a_run(**STEP)])
    write_table(frame[sorted(frame.columns)].assign(more=1), tmp_path / "steps.parquet")
    schema = pq.read_schema(tmp_path / "steps.parquet")
    assert schema.names == [*KEYS, "phase", "step", "ms"]
    assert schema.field("ms").metadata[b"unit"] == b"ms" and b"profiler" in schema.field("ms").metadata[b"meaning"]
    assert (tmp_path / "steps.csv").read_text().splitlines()[0] == ",".join(schema.names)
    assert read_tables([tmp_path / "steps.parquet"])["steps"].equals(read_table(tmp_path / "steps.parquet"))
    assert list(tmp_path.glob(".*")) == []


def test_a_table_of_one_run_has_no_leading_columns(tmp_path):
    write_table(pd.DataFrame([STEP]), tmp_path / "steps.parquet", keys=False)
    assert list(read_table(tmp_path / "steps.parquet")) == ["phase", "step", "ms"]


def test_another_name_than_that_of_the_file_can_be_given(tmp_path):
    write_table(make_table("process_steps", [a_run(**STEP, process=2)]), tmp_path / "steps.csv", name="process_steps")
    assert read_table(tmp_path / "steps.parquet")["process"].tolist() == [2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ms": "long"}, "table steps: column ms is declared as float, and has .* such as 'long'"),
        ({"step": 0.5}, "table steps: column step is declared as int, and has float64 such as 0.5"),
        ({"phase": 7}, "table steps: column phase is declared as text, and has int64 such as 7"),
    ],
)
def test_a_value_of_another_type_is_refused_by_table_and_column(tmp_path, change, message):
    with pytest.raises(WrongTable, match=message):
        write_table(pd.DataFrame([a_run(**STEP) | change]), tmp_path / "steps.parquet")
    assert not (tmp_path / "steps.parquet").exists()


def test_a_missing_column_is_named(tmp_path):
    with pytest.raises(WrongTable, match="table steps: no column gpus, ms"):
        write_table(pd.DataFrame([a_run(**STEP)]).drop(columns=["ms", "gpus"]), tmp_path / "steps.parquet")


def test_a_table_that_is_not_declared_is_refused(tmp_path):
    with pytest.raises(WrongTable, match=r"table mine: not declared; add its columns to workflow/columns.yaml"):
        write_table(pd.DataFrame([STEP]), tmp_path / "mine.parquet", keys=False)


def test_a_table_without_rows_keeps_its_types(tmp_path):
    write_table(make_table("findings"), tmp_path / "findings.parquet")
    types = read_table(tmp_path / "findings.parquet").dtypes
    assert [str(types[name]) for name in ("run", "gpus", "gain_ms", "abstained")] == ["str", "int64", "float64", "bool"]


def test_values_may_be_missing_and_an_integer_stays_one(tmp_path):
    rows = [a_run(run="a", parameters=2**40 + 1, loss=1.0), a_run(run="b")]
    write_table(make_table("runs", rows), tmp_path / "runs.parquet")
    runs = read_table(tmp_path / "runs.parquet")
    assert runs["parameters"][0] == 2**40 + 1 and runs["parameters"].isna().tolist() == [False, True]
    assert runs["reason"].isna().all() and runs["reason"].dtype == "str"
    assert str(2**40 + 1) in (tmp_path / "runs.csv").read_text()


def test_a_number_in_a_column_of_texts_is_read_as_its_text(tmp_path):
    """The tables of the example have numbers of blocks there."""
    pd.DataFrame({"run": ["a", "b", "c"], "checkpoint": [0, 8, None], "own": [1, 2, 3]}).to_parquet(
        tmp_path / "runs.parquet"
    )
    runs = read_table(tmp_path / "runs.parquet")
    assert runs["checkpoint"].tolist()[:2] == ["0", "8"] and pd.isna(runs["checkpoint"][2])
    assert runs["own"].tolist() == [1, 2, 3]  # an undeclared column is kept


def test_texts_may_be_categories(tmp_path):
    frame = make_table("steps", [a_run(**STEP), a_run(**STEP)])
    write_table(frame.astype({"phase": "category", "run": "category"}), tmp_path / "steps.parquet")
    assert read_table(tmp_path / "steps.parquet").equals(frame)


def test_the_dictionary_has_a_section_per_table_and_a_row_per_column():
    text = tables.dictionary()
    for name in tables.declared_tables():
        section = re.search(rf"\n## {name}\n(.*?)(\n## |$)", text, re.DOTALL)[1]
        assert all(f"| `{column}` |" in section for column in tables.declared_columns(name, keys=False))
    assert all(f"| `{key}` |" in text.partition("\n## ")[0] for key in KEYS)


def test_every_declaration_has_a_type_a_meaning_and_a_name_of_its_own():
    for name in tables.declared_tables():
        for column, (kind, _, meaning) in tables.declared_columns(name, keys=False).items():
            assert kind in ("text", "int", "float", "bool") and meaning and column not in KEYS, (name, column)
