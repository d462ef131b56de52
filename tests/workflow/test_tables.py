"""Tables on disk: what is written is what is declared, and what is read has the declared types."""

import pandas as pd
import pyarrow.parquet as pq
import pytest

from workflow.tables import KEYS, WrongTable, make_table, read_table, read_tables, write_table


def a_run(**values):
    numbers = dict.fromkeys(("context_length", "batch_size", "gpus"), 1)
    return {key: numbers.get(key, "0") for key in KEYS} | values


STEP = a_run(phase="forward", step=0, ms=1.5)


def test_a_table_is_written_as_parquet_with_units_and_as_csv_in_the_declared_order(tmp_path):
    frame = pd.DataFrame([STEP])
    write_table(frame[sorted(frame.columns)].assign(more=1), tmp_path / "warmup_steps.parquet")
    schema = pq.read_schema(tmp_path / "warmup_steps.parquet")
    assert schema.names == [*KEYS, "phase", "step", "ms"]
    assert schema.field("ms").metadata[b"unit"] == b"ms" and b"profiler" in schema.field("ms").metadata[b"meaning"]
    assert (tmp_path / "warmup_steps.csv").read_text().splitlines()[0] == ",".join(schema.names)
    path = tmp_path / "warmup_steps.parquet"
    assert read_tables([path])["warmup_steps"].equals(read_table(path))
    assert list(tmp_path.glob(".*")) == []


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("warmup_steps", STEP | {"ms": "long"}, ".* for column ms with type"),
        ("warmup_steps", STEP | {"step": 0.5}, "Float value 0.500000 .* for column step with type float64"),
        ("warmup_steps", {"phase": "forward", "step": 0}, "name 'run' .* is not found"),
        ("mine", STEP, "not declared; add its columns to workflow/columns.yaml"),
    ],
)
def test_what_is_not_as_declared_is_refused_by_table_and_column(tmp_path, name, row, message):
    with pytest.raises(WrongTable, match=rf"^table {name}\b.*{message}"):
        write_table(pd.DataFrame([row]), tmp_path / f"{name}.parquet")
    assert not list(tmp_path.iterdir())


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
    frame = pd.DataFrame({"run": ["a", "b", "c"], "checkpoint": [0, 8, None], "own": [1, 2, 3]})
    frame.to_parquet(tmp_path / "runs.parquet")
    runs = read_table(tmp_path / "runs.parquet")
    assert runs["checkpoint"].tolist()[:2] == ["0", "8"] and pd.isna(runs["checkpoint"][2])
    assert runs["own"].tolist() == [1, 2, 3]  # an undeclared column is kept
