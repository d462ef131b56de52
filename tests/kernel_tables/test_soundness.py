"""Files that can be read from one end to the other and yet lack rows, or have some twice."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kernel_tables.errors import ImpossibleCapture
from kernel_tables.reading.soundness import _require_sound_pages
from kernel_tables.trace import Trace
from tests.kernel_tables.synthetic import Synthetic

PAGE = 4096
LEAF_OF_TABLE = 13
KERNELS = 2000


@pytest.fixture
def path(tmp_path) -> Path:
    """A capture whose table of kernels has many pages, and no other has a second."""
    capture = Synthetic().range("step", 0, 50).diagnostic(1, "fine")
    for number in range(KERNELS):
        capture.kernel("gemm", at=None, start=20 * number)
    return capture.write(tmp_path / "capture.sqlite")


def kernels(path: Path) -> int:
    with Trace(path) as trace:
        return int(trace.kernels()["launches"].sum())


def leaves(content: bytes) -> list[int]:
    """Where each page of kernels begins, in their order."""
    begins = range(PAGE, len(content), PAGE)
    return [
        begin
        for begin in begins
        if content[begin] == LEAF_OF_TABLE and int.from_bytes(content[begin + 3 : begin + 5], "big") > 20
    ]


def overwrite(path: Path, begin: int, page: bytes) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:begin] + page + content[begin + len(page) :])


def refused(path: Path) -> str:
    with pytest.raises(ImpossibleCapture) as raised:
        kernels(path)
    return raised.value.findings[0].code


def test_a_sound_file_gives_all_its_kernels(path):
    assert len(leaves(path.read_bytes())) > 10
    assert kernels(path) == KERNELS


def test_a_page_that_stands_in_twice_is_refused(path):
    content = path.read_bytes()
    third, fourth, *_ = leaves(content)[2:]
    overwrite(path, fourth, content[third : third + PAGE])
    assert refused(path) == "damaged_file"


def test_two_pages_that_changed_places_are_refused(path):
    content = path.read_bytes()
    third, fourth, *_ = leaves(content)[2:]
    overwrite(path, fourth, content[third : third + PAGE])
    overwrite(path, third, content[fourth : fourth + PAGE])
    assert refused(path) == "damaged_file"


def test_cells_of_zeros_are_refused(path):
    middle = leaves(path.read_bytes())[5]
    overwrite(path, middle + PAGE // 2, bytes(PAGE // 2))
    assert refused(path) == "damaged_file"


def test_a_page_that_counts_too_few_cells_is_refused(path):
    middle = leaves(path.read_bytes())[5]
    overwrite(path, middle + 3, (15).to_bytes(2, "big"))
    assert refused(path) == "damaged_file"


def test_a_table_whose_rows_were_deleted_soundly_is_believed(path):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid % 7 = 0")
    assert kernels(path) == KERNELS - KERNELS // 7


def test_damage_to_a_small_table_is_found_by_the_check_of_it(path):
    content = path.read_bytes()
    with closing(sqlite3.connect(path)) as database:
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'DIAGNOSTIC_EVENT'").fetchone()
    assert content[(root - 1) * PAGE] == LEAF_OF_TABLE
    overwrite(path, (root - 1) * PAGE + 3, (0).to_bytes(2, "big"))
    assert refused(path) == "damaged_file"


def test_a_first_page_in_the_place_of_the_root_is_refused(path):
    content = path.read_bytes()
    with closing(sqlite3.connect(path)) as database:
        (root,) = database.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'"
        ).fetchone()
    first = leaves(content)[0]
    overwrite(path, (root - 1) * PAGE, content[first : first + PAGE])
    assert refused(path) == "damaged_file"
    with Trace(path) as trace:
        assert [finding.code for finding in trace.check()] == ["damaged_file"]


def types_of_a_row(path: Path) -> int:
    """Where the types of the columns of a kernel on the last page begin."""
    content = path.read_bytes()
    leaf = leaves(content)[-1]
    cell = leaf + int.from_bytes(content[leaf + 8 : leaf + 10], "big")
    length, number = content[cell], content[cell + 1 : cell + 3]
    assert length < 128 and number[0] >= 128 > number[1], "a length of one byte and a row number of two"
    return cell + 4


def test_a_row_that_is_not_as_long_as_its_columns_is_refused(path):
    begin = types_of_a_row(path)
    types = path.read_bytes()[begin : begin + 30]
    place = next(place for place, of_column in enumerate(types) if of_column in (1, 2))
    overwrite(path, begin + place, bytes([types[place] ^ 3]))  # a byte instead of two, or two instead of one
    assert refused(path) == "damaged_file"


def test_a_missing_value_in_a_column_that_must_have_one_is_refused(path):
    required = "replace(sql, '\"deviceId\" INTEGER', '\"deviceId\" INTEGER NOT NULL')"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute(f"UPDATE sqlite_master SET sql = {required} WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'")
    assert kernels(path) == KERNELS
    with closing(sqlite3.connect(path)) as database:
        columns = [column[1] for column in database.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")]
    begin = types_of_a_row(path) + columns.index("deviceId")
    assert path.read_bytes()[begin] in (8, 9), "of a number without a byte"
    overwrite(path, begin, bytes(1))
    with Trace(path) as trace, pytest.raises(ImpossibleCapture, match="which the table forbids"):
        trace.activities()


def test_every_page_is_checked_before_any_row(path):
    content = path.read_bytes()
    _require_sound_pages(path, path)
    for begin in range(PAGE, len(content), PAGE):
        overwrite(path, begin + 3, (2000).to_bytes(2, "big"))
        with pytest.raises(ImpossibleCapture):
            _require_sound_pages(path, path)
        overwrite(path, begin, content[begin : begin + PAGE])


def test_damage_to_a_table_that_is_not_read_is_refused_too(path):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE PROFILER_OVERHEAD (start INTEGER)")
        database.execute("INSERT INTO PROFILER_OVERHEAD VALUES (1)")
    assert kernels(path) == KERNELS
    with closing(sqlite3.connect(path)) as database:
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'PROFILER_OVERHEAD'").fetchone()
    overwrite(path, (root - 1) * PAGE + 3, (9).to_bytes(2, "big"))
    assert refused(path) == "damaged_file"
