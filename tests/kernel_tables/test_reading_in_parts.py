"""Large tables are read in parts, by row number, on several connections: the same rows, and the same refusals."""

import sqlite3

import pandas as pd
import pyarrow as pa
import pytest

from kernel_tables.errors import ImpossibleCapture
from kernel_tables.reading import capture as reading
from kernel_tables.reading.table_columns import GrowingColumn
from kernel_tables.trace import Trace
from tests.kernel_tables.synthetic import Synthetic

TABLES = ("activities", "range_instances", "kernels", "range_tree")


@pytest.fixture
def in_parts(monkeypatch):
    """A function that says how many parts each table has from now on."""

    def divide(count: int) -> None:
        monkeypatch.setattr(reading, "processor_count", lambda: count + reading.OTHER_THREADS)
        monkeypatch.setattr(reading, "LARGE_BYTES", 0)
        monkeypatch.setattr(reading, "LARGE_ROWS", 1)

    return divide


@pytest.fixture
def capture(tmp_path):
    made = Synthetic()
    for step in range(9):
        made.range(f"step {step}", 100 * step, 100 * step + 90)
        for place in range(7):
            made.range("inner", 100 * step + 10 * place, 100 * step + 10 * place + 9, registered=place % 2 == 0)
            made.kernel(f"kernel{place}", at=100 * step + 10 * place + 2, duration=5)
    return made.write(tmp_path / "capture.sqlite")


def tables(path):
    with Trace(path) as trace:
        return [getattr(trace, name)() for name in TABLES]


@pytest.mark.parametrize("outgrowing", [[1 << 31], [-2], [1 << 62, -(1 << 63)]])
def test_numbers_that_outgrow_32_bits_are_kept_with_those_before_and_after_them(outgrowing):
    column = GrowingColumn(narrow=True)
    for values in ([7, None], [(1 << 31) - 1], outgrowing, [3]):
        column.append(pa.array(values, pa.int64()))
    assert column.values().tolist() == [7, -1, (1 << 31) - 1, *outgrowing, 3]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_parts_of_a_table_are_the_whole_in_its_order(capture, in_parts, count):
    whole = tables(capture)
    in_parts(count)
    with Trace(capture) as trace:
        assert len(trace.capture._parts("NVTX_EVENTS")) == count
    for found, expected in zip(tables(capture), whole, strict=True):
        pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize("row", [1, 63])
def test_an_impossible_time_in_any_part_is_refused_as_in_the_whole(capture, in_parts, row):
    with sqlite3.connect(capture) as connection:
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = -5 WHERE rowid = ?", (row,))
    connection.close()
    errors = []
    for count in (1, 3):
        in_parts(count)
        with pytest.raises(ImpossibleCapture) as error:
            tables(capture)
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_a_table_whose_columns_hide_its_row_numbers_is_read_as_a_whole(capture, in_parts):
    with sqlite3.connect(capture) as connection:
        connection.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN RowId INTEGER")
    connection.close()
    in_parts(3)
    with Trace(capture) as trace:
        assert trace.capture._parts("CUPTI_ACTIVITY_KIND_KERNEL") == [("", 0)]
        assert (trace.activities()["kind"] == "kernel").sum() == 63
