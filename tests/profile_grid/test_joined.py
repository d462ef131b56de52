"""The tables of several runs below one another, from small tables of one run each."""

import pandas as pd
import pytest

from profile_grid.files import write_table
from profile_grid.merging.merge import joined_tables
from profile_grid.results.load_runs import MeasuredRun
from profile_grid.results.results import COMPLETE, INCOMPLETE, StageStatus
from profile_grid.study.dimensions import DIMENSIONS, LEADING
from profile_grid.tables.texts import as_texts

FIRST = pd.DataFrame({"step": [0, 0], "kernel": ["gemm<int, -1>", 'a "b"'], "total_ns": [5, 7], "mean_ns": [2.5, 7.0]})
SECOND = pd.DataFrame({"step": [1], "kernel": ["add"], "total_ns": [3], "mean_ns": [3.0]})
EMPTY = pd.DataFrame(columns=FIRST.columns)


@pytest.fixture
def joined(tmp_path):
    """A function that writes a table of kernels for each run and gives them joined."""

    def join(*tables: pd.DataFrame, statuses=None) -> pd.DataFrame:
        runs = []
        for number, table in enumerate(tables):
            values = {one.key: one.values[0] if one.values else number for one in DIMENSIONS}
            entry = {"run": f"run{len(tables) - number}", **values}
            (tmp_path / entry["run"]).mkdir()
            table.to_parquet(tmp_path / entry["run"] / "kernels.parquet", index=False)
            status = statuses[number] if statuses else COMPLETE
            runs.append(MeasuredRun(entry, {}, {"capture": StageStatus(status, None, [])}))
        return joined_tables(runs, tmp_path, "capture", "kernels")

    return join


def test_the_runs_keep_their_order_and_lead_their_rows(joined):
    table = joined(FIRST, SECOND)
    assert list(table.columns) == [*LEADING, *FIRST.columns]
    assert table["run"].tolist() == ["run2", "run2", "run1"]
    assert table["context_length"].tolist() == [0, 0, 1]
    assert table["total_ns"].tolist() == [5, 7, 3]


def test_every_text_is_kept_once(joined):
    kernels = joined(FIRST, SECOND)["kernel"]
    assert kernels.tolist() == ["gemm<int, -1>", 'a "b"', "add"]
    assert kernels.cat.categories.tolist() == ['a "b"', "add", "gemm<int, -1>"]


def test_the_csv_is_that_of_the_same_rows_as_texts(joined, tmp_path):
    table = joined(FIRST, SECOND)
    texts = pd.concat([FIRST, SECOND], ignore_index=True)
    texts = pd.concat([as_texts(table[LEADING]), texts], axis=1)
    write_table(tmp_path / "joined", table)
    write_table(tmp_path / "texts", texts)
    assert (tmp_path / "joined.csv").read_bytes() == (tmp_path / "texts.csv").read_bytes()


def test_whole_numbers_that_one_run_lacks_stay_whole(joined):
    lacking = SECOND.assign(total_ns=pd.array([None], dtype="Int64"))
    table = joined(FIRST, lacking)
    assert table["total_ns"].dtype == "Int64"
    assert table["total_ns"].isna().tolist() == [False, False, True]


def test_a_run_without_rows_and_an_incomplete_one_add_none(joined):
    table = joined(EMPTY, FIRST, SECOND, statuses=[COMPLETE, COMPLETE, INCOMPLETE])
    assert table["run"].tolist() == ["run2", "run2"]
    assert table["total_ns"].dtype == "int64"


def test_without_any_row_the_columns_are_there(joined):
    table = joined(EMPTY, SECOND, statuses=[COMPLETE, INCOMPLETE])
    assert list(table.columns) == [*LEADING, *FIRST.columns]
    assert table.empty
