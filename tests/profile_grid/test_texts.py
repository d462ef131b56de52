"""Tables in which every text is kept once are worth as much as those with a text in every row."""

import functools

import pandas as pd
import pyarrow as pa
import pytest

from profile_grid.documents.summaries import summary_tables
from profile_grid.figures.panels import all_figures
from profile_grid.figures.paper import on_paper
from profile_grid.files import write_table
from profile_grid.study.catalogue import QUESTIONS, RUN_TABLE_NAMES, summary_names
from profile_grid.study.workloads import MODEL_STEPS
from profile_grid.tables.on_disk import COLUMNS_FOR_SUMS, TablesOnDisk
from profile_grid.tables.per_pass import total_by_run
from profile_grid.tables.texts import as_texts, repeated_column, with_categories
from tests.profile_grid.made_up_grid import OOM, made_up_tables

AWKWARD = ["gemm<int, -1>", 'say "no"', "", "b > a", "gemm<int, -1>"]


def kept_once(table: pd.DataFrame) -> pd.DataFrame:
    return with_categories(pa.Table.from_pandas(table, preserve_index=False))


@functools.cache
def plain(grid: str = "nested") -> dict[str, pd.DataFrame]:
    """The tables of a made-up grid; the flat one knows no range inside a phase, the empty one has no capture."""
    tables = made_up_tables(
        models=("xl",), contexts=(128, 512), precisions=("fp32", "bf16"),
        changes={"xl_ctx512_train_step": OOM},
    )  # fmt: skip
    if grid == "flat":
        tables |= {name: tables[name].assign(range="") for name in ("kernels", "ranges")}
    if grid == "empty":
        tables |= {name: pd.DataFrame(columns=tables[name].columns) for name in RUN_TABLE_NAMES}
    return tables | summary_tables(tables)


@functools.cache
def encoded(grid: str) -> dict[str, pd.DataFrame]:
    """The same with summaries of their own, from large tables that keep every text once."""
    tables = plain(grid) | {name: kept_once(plain(grid)[name]) for name in RUN_TABLE_NAMES}
    return tables | summary_tables(tables)


def test_the_kernel_table_of_these_tests_has_categories():
    assert isinstance(encoded("nested")["kernels"]["kernel"].dtype, pd.CategoricalDtype)


@pytest.mark.parametrize("grid", ["nested", "flat", "empty"])
@pytest.mark.parametrize("name", summary_names({MODEL_STEPS}))
def test_every_summary_is_the_same(name, grid):
    # the made-up whole numbers may be of pandas' nullable type without need, which no file keeps
    pd.testing.assert_frame_equal(encoded(grid)[name], plain(grid)[name], check_dtype=False)


@pytest.mark.parametrize("grid", ["nested", "flat", "empty"])
@pytest.mark.parametrize(
    "name", [name for question in QUESTIONS if question.workload is MODEL_STEPS for name in question.figures]
)
def test_every_figure_is_the_same(name, grid):
    figure = all_figures()[name]
    of_plain, of_encoded = (
        on_paper(figure, {table: tables[table] for table in figure.tables}) for tables in (plain(grid), encoded(grid))
    )
    assert of_encoded == of_plain


def test_the_text_of_a_csv_is_the_same(tmp_path):
    table = pd.DataFrame({"kernel": AWKWARD, "total_ns": [1, -2, 3, 4, 5], "mean_ns": [1.0, 1e16, 1e-7, 0.1, 19562.6]})
    write_table(tmp_path / "plain", table)
    write_table(tmp_path / "encoded", kept_once(table))
    assert (tmp_path / "encoded.csv").read_bytes() == (tmp_path / "plain.csv").read_bytes()


def test_rows_sort_by_categories_as_by_the_text():
    table = kept_once(pd.DataFrame({"phase": ["optimizer", "backward", "(outside)"]}))
    assert table.sort_values("phase")["phase"].tolist() == ["(outside)", "backward", "optimizer"]


def test_whole_numbers_stay_whole_where_some_are_absent():
    whole = 2**60 + 1  # not every whole number of this size is a floating-point number
    table = kept_once(pd.DataFrame({"kernel_ns": pd.array([whole, None], dtype="Int64")}))
    assert table["kernel_ns"].dtype == "Int64"
    assert table["kernel_ns"][0] == whole


def test_categories_become_texts_again():
    table = pd.DataFrame({"kernel": AWKWARD, "total_ns": range(5)})
    pd.testing.assert_frame_equal(as_texts(kept_once(table)), table)


def test_sums_of_some_rows_can_be_set_beside_those_of_hundreds_of_runs():
    # categories of a few runs are numbered in a byte, those of more than 127 in two
    kernels = kept_once(pd.DataFrame({"run": [f"run{number:03}" for number in range(200)], "total_ns": range(200)}))
    whole, some = total_by_run(kernels), total_by_run(kernels[:1])
    assert some.reindex(whole.index, fill_value=7).tolist() == [0, *[7] * 199]
    assert total_by_run(kernels[:0]).reindex(whole.index, fill_value=0).tolist() == [0] * 200


def test_each_value_is_repeated_as_often_as_asked_for():
    assert repeated_column(["b", "a"], [2, 1]).tolist() == ["b", "b", "a"]
    assert repeated_column([512, 128], [0, 2]).tolist() == [128, 128]


def test_only_the_columns_asked_for_are_read(tmp_path):
    write_table(tmp_path / "kernels", plain()["kernels"])
    write_table(tmp_path / "runs", plain()["runs"])
    tables = TablesOnDisk(tmp_path, columns=COLUMNS_FOR_SUMS)
    assert set(plain()["kernels"].columns) - set(tables["kernels"].columns) == {"mean_ns", "min_ns", "max_ns"}
    assert list(tables["runs"].columns) == list(plain()["runs"].columns)
    assert list(TablesOnDisk(tmp_path)["kernels"].columns) == list(plain()["kernels"].columns)
