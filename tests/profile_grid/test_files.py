"""Tables as files: complete or not there; what a capture names cannot break a CSV, and is exact in Parquet."""

import csv

import pandas as pd
import pytest

from profile_grid.files import replacing, write_table

NAMES = ["=cmd|' /C calc'!A1", "a\r\nb", "\x1b[31mred", "gemm<int, -1>"]


def test_a_csv_has_a_row_per_row_and_no_formula_and_parquet_the_exact_names(tmp_path):
    table = pd.DataFrame({"kernel": pd.Categorical(NAMES), "range": NAMES, "total_ns": [1, -2, 3, 4]})
    write_table(tmp_path / "kernels", table)
    with (tmp_path / "kernels.csv").open(newline="") as file:
        _, *rows = csv.reader(file)
    clean = ["'=cmd|' /C calc'!A1", "a\\r\\nb", "\\x1b[31mred", "gemm<int, -1>"]
    assert rows == [[name, name, ns] for name, ns in zip(clean, ["1", "-2", "3", "4"], strict=True)]
    assert pd.read_parquet(tmp_path / "kernels.parquet")["kernel"].tolist() == NAMES


def test_what_fails_while_it_is_written_leaves_the_file_that_was_there_and_no_other(tmp_path):
    (tmp_path / "table.csv").write_text("complete")
    with pytest.raises(KeyError), replacing(tmp_path / "table.csv") as partial:
        partial.write_text("half")
        raise KeyError
    assert (tmp_path / "table.csv").read_text() == "complete"
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]
