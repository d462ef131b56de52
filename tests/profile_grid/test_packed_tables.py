"""Parquet files of an archive that would fill the memory: they are refused in one line, and honest ones are read."""

import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from profile_grid.errors import OutsideError
from profile_grid.sharing import packed_tables
from profile_grid.sharing.archive import write_archive
from profile_grid.sharing.packed_tables import TooLarge, UnusableTable, read_columns
from profile_grid.study.catalogue import merged_names
from profile_grid.study.workloads import MODEL_STEPS
from profile_grid.tables.on_disk import declared_tables
from tests.profile_grid.test_sharing import RUN
from workflow.scripts import read_packed

MERGED = merged_names({MODEL_STEPS})

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "example-h200" / "tables"
A_BILLION = 10**9
VICTIM = "tables/kernels.parquet"


def rows_that_repeat(path: Path, rows: int = A_BILLION, column: str = "run") -> Path:
    """A real file of so many rows with one number: its groups of rows are the same bytes, listed again and again."""
    path.write_bytes(content_that_repeats(rows, column))
    return path


@cache
def content_that_repeats(rows: int, column: str) -> bytes:
    group = 10_000_000
    with TemporaryDirectory() as folder:
        path = Path(folder, "whole.parquet")
        pq.write_table(pa.table({column: np.zeros(group, np.int64)}), path, row_group_size=group, data_page_size=2**30)
        contents, whole = (pq.read_metadata(path) for _ in range(2))
        raw = path.read_bytes()
        body = raw[: len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")]
        for _ in range(rows // group - 1):
            whole.append_row_groups(contents)
        whole.write_metadata_file(path)
        return body + path.read_bytes()[4:]


def text_that_repeats(path: Path, rows: int, size: int, as_categories: bool) -> Path:
    """A real file whose rows all hold one long text, which stands in it once."""
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * size]))
    pq.write_table(pa.table({"run": text}), path, compression="zstd", store_schema=as_categories)
    return path


def test_a_billion_rows_in_few_bytes_are_refused_by_what_the_file_says_of_itself(tmp_path):
    path = rows_that_repeat(tmp_path / "a.parquet")
    assert path.stat().st_size < 100_000 and pq.read_metadata(path).num_rows == A_BILLION
    assert pq.ParquetFile(path).read_row_group(99).num_rows == 10_000_000  # the last hundredth is there
    began = time.process_time()
    with pytest.raises(TooLarge, match=r"^with a\.parquet its tables need 7 GiB of memory; those of results need"):
        read_columns(tmp_path, ["a.parquet"])
    assert time.process_time() - began < 1


def test_tables_that_are_each_small_enough_are_refused_where_they_are_too_large_together(tmp_path):
    names = [rows_that_repeat(tmp_path / f"{name}.parquet", A_BILLION // 2).name for name in "ab"]
    with pytest.raises(TooLarge, match=r"^with b\.parquet its tables need 7 GiB"):
        read_columns(tmp_path, names)


def test_a_list_of_a_billion_values_in_one_row_counts_as_so_many(tmp_path, monkeypatch):
    monkeypatch.setattr(packed_tables, "MAX_BYTES", 7_000_000)
    one_row = pa.ListArray.from_arrays(pa.array([0, 10**6]), pa.array(np.zeros(10**6, np.int64)))
    pq.write_table(pa.table({"run": one_row}), tmp_path / "a.parquet")
    with pytest.raises(TooLarge):
        read_columns(tmp_path, ["a.parquet"])


def test_a_text_that_repeats_inside_a_structure_or_a_list_is_refused(tmp_path):
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), pa.array(["x" * 1_000_000]))
    in_structure = pa.StructArray.from_arrays([texts], ["text"])
    in_list = pa.ListArray.from_arrays(pa.array(range(20_001), pa.int32()), texts)
    for column in (in_structure, in_list):
        pq.write_table(pa.table({"run": column}), tmp_path / "a.parquet", compression="zstd")
        assert pq.read_table(tmp_path / "a.parquet").nbytes < 2_000_000  # and 20 GB as text
        with pytest.raises(UnusableTable, match=r"^a\.parquet: a column holds (struct|list)<.*numbers and texts$"):
            read_columns(tmp_path, ["a.parquet"])


IN_A_PROCESS = """
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from profile_grid.sharing import packed_tables
packed_tables.MAX_BYTES, packed_tables.MAX_PROCESS_BYTES = 2**29, 3 * 2**29
try:
    packed_tables.read_columns(Path(sys.argv[1]), ["a.parquet"])
except packed_tables.TooLarge as error:
    print(error)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts a process's memory as Linux does")
@pytest.mark.parametrize("as_categories", [False, True])
def test_a_long_text_in_every_row_takes_no_more_memory_than_the_limit(tmp_path, as_categories):
    path = text_that_repeats(tmp_path / "a.parquet", 20_000, 1_000_000, as_categories)
    assert path.stat().st_size < 2_000  # and 20 GB as text
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120,
        check=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    said, peak = done.stdout.splitlines()
    size = "19 GiB" if as_categories else "more than 2 GiB"
    assert said.startswith(f"with a.parquet its tables need {size} of memory; those of results need at most")
    assert int(peak) < 1.7 * 2**30


def test_a_limit_of_memory_ends_with_its_block():
    before = packed_tables.resource.getrlimit(packed_tables.resource.RLIMIT_DATA)
    with pytest.raises(KeyError), packed_tables.memory_limited(2**40):
        assert packed_tables.resource.getrlimit(packed_tables.resource.RLIMIT_DATA)[0] == 2**40
        raise KeyError
    assert packed_tables.resource.getrlimit(packed_tables.resource.RLIMIT_DATA) == before


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no table at all" * 9])
def test_what_is_no_parquet_is_named(tmp_path, content):
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(UnusableTable, match=r"^a\.parquet: "):
        read_columns(tmp_path, ["a.parquet"])


def test_the_tables_of_a_real_study_take_a_hundredth_of_the_room():
    names = [f"{name}.parquet" for name in MERGED if (EXAMPLE / f"{name}.parquet").exists()]
    assert read_columns(EXAMPLE, names) == {name: list(pd.read_parquet(EXAMPLE / name).columns) for name in names}
    assert sum(packed_tables._declared_bytes(EXAMPLE / name) for name in names) < packed_tables.MAX_BYTES / 100


@pytest.fixture
def results(tmp_path):
    """A folder of results whose merged tables have their columns, and no rows."""
    tables = tmp_path / "results" / "tables"
    tables.mkdir(parents=True)
    for name in MERGED:
        columns = declared_tables()[name].all_names
        pd.DataFrame(columns=columns).to_parquet(tables / f"{name}.parquet", index=False)
    return tmp_path / "results"


def read_back(results: Path) -> Path:
    """The folder into which an archive of these results is read."""
    archive, theirs = results.with_name("a.zip"), results.with_name("theirs")
    write_archive(results, archive, captures=False, version="1\x1b[2J", grid="g", runs=[RUN])
    read_packed.main(archive=archive, results=theirs, marker="packed.json")
    return theirs


def test_an_archive_with_tables_of_results_is_read(results):
    assert len(list(read_back(results).glob("tables/*.parquet"))) == len(MERGED)


@pytest.mark.parametrize("victim", ["tables/kernels.parquet", "page/timeline.parquet", "processes/steps.parquet"])
def test_an_archive_with_a_table_that_would_fill_the_memory_is_refused_in_one_line(results, victim):
    (results / victim).parent.mkdir(exist_ok=True)
    rows_that_repeat(results / victim)
    with pytest.raises(OutsideError, match=rf"a\.zip: with {victim} its tables need 7 GiB of memory; ") as raised:
        read_back(results)
    assert len(str(raised.value).splitlines()) == 1
    assert not list((results.with_name("theirs")).iterdir())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "its tables cannot be used here (tables/kernels.parquet: "),
        (b"no table", "its tables cannot be used here (tables/kernels.parquet: "),
        (
            pd.DataFrame({"\x1b[2J": [1]}),
            r"its tables cannot be used here (table kernels: columns without a declaration, or twice: \x1b",
        ),
    ],
)
def test_an_archive_with_other_tables_names_them_without_writing_to_the_terminal(results, content, said):
    path = results / VICTIM
    path.unlink()
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        content.to_parquet(path, index=False)
    with pytest.raises(OutsideError) as raised:
        read_back(results)
    assert said in str(raised.value) and "\x1b" not in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
