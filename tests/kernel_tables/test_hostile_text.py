"""Text and types from a capture that nobody expects: they are shown, and do nothing."""

import csv
import io
import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kernel_tables.clean_text import csv_cell, visible, with_clean_cells
from kernel_tables.errors import TraceError
from kernel_tables.output import rendered
from kernel_tables.trace import Trace
from kernel_tables.views.completeness import as_table
from kernel_tables.views.perfetto import write_timeline
from tests.kernel_tables.command import run_command
from tests.kernel_tables.synthetic import Synthetic, changed

KERNEL, NVTX, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"
NO_UTF8 = "CAST(x'636166e9' AS TEXT)"  # caf\xe9


def small() -> Synthetic:
    capture = Synthetic().range("step", 0, 100).range("registered", 5, 80, registered=True)
    return capture.kernel("gemm", at=20).memcpy(at=30).diagnostic(2, "Something is old.").domain(0, "mine")


@pytest.fixture
def path(tmp_path) -> Path:
    return small().write(tmp_path / "capture.sqlite")


def everything(path: Path) -> str:
    """All that can be asked of a capture, as text."""
    with Trace(path) as trace:
        tables = [as_table(trace.check()), trace.ranges(), trace.kernels(), trace.classes()]
        tables += [trace.activities(), trace.range_instances()]
        write_timeline([trace], path.with_suffix(".json"), None, compressed=False)
        metadata = str(trace.metadata)
    texts = [rendered(table, name).decode() for table in tables for name in ("csv", "md", "json")]
    return "".join([*texts, metadata, json.dumps(json.loads(path.with_suffix(".json").read_text()))])


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE StringIds SET value = {NO_UTF8} WHERE value = 'gemm'",
        f"UPDATE StringIds SET value = {NO_UTF8} WHERE value = 'registered'",
        "UPDATE StringIds SET value = x'636166e9' WHERE value = 'gemm'",
        f"UPDATE {NVTX} SET text = {NO_UTF8} WHERE text = 'step'",
        f"UPDATE {NVTX} SET text = x'636166e9' WHERE text = 'step'",
        f"UPDATE DIAGNOSTIC_EVENT SET text = {NO_UTF8}",
        f"UPDATE META_DATA_EXPORT SET value = {NO_UTF8}",
    ],
)
def test_a_name_that_is_no_utf8_has_a_replacement_mark(path, statement):
    said = everything(changed(path, statement))
    assert "caf\N{REPLACEMENT CHARACTER}" in said or r"caf\ufffd" in said


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE StringIds SET value = 7",
        "UPDATE StringIds SET value = 1.5",
        f"UPDATE {NVTX} SET text = 7",
        f"UPDATE {NVTX} SET text = NULL",
        "UPDATE DIAGNOSTIC_EVENT SET text = NULL, severity = 'grave'",
        "UPDATE DIAGNOSTIC_EVENT SET severity = NULL",
        "UPDATE DIAGNOSTIC_EVENT SET text = 7",
        "UPDATE META_DATA_EXPORT SET name = NULL, value = NULL",
        "CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id, name, label)",
        "CREATE TABLE ENUM_CUDA_MEMCPY_OPER AS SELECT 1 AS id, NULL AS name, NULL AS label",
        "CREATE TABLE ENUM_CUDA_MEMCPY_OPER AS SELECT 'one' AS id, 2 AS name, x'ff' AS label",
        "DROP TABLE DIAGNOSTIC_EVENT",
        f"UPDATE {RUNTIME} SET returnValue = 0",
        f'ALTER TABLE {RUNTIME} DROP COLUMN "end"',
        f"ALTER TABLE {RUNTIME} DROP COLUMN nameId",
        f"ALTER TABLE {RUNTIME} DROP COLUMN returnValue",
        f"ALTER TABLE {KERNEL} DROP COLUMN deviceId",
        f"ALTER TABLE {NVTX} DROP COLUMN domainId",
        f"ALTER TABLE {NVTX} DROP COLUMN text",
        "ALTER TABLE DIAGNOSTIC_EVENT DROP COLUMN severity",
        "ALTER TABLE META_DATA_EXPORT DROP COLUMN value",
    ],
)
def test_a_value_of_another_type_or_a_lacking_column_costs_nothing_else(path, statement):
    assert "[CUDA memcpy" in everything(changed(path, statement))


@pytest.mark.parametrize("value", ["'7); DROP TABLE StringIds; --'", "'text'", "x'00'", "1.5"])
@pytest.mark.parametrize(
    ("table", "column"), [(RUNTIME, "nameId"), (KERNEL, "demangledName"), (NVTX, "textId"), (NVTX, "eventType")]
)
def test_text_in_the_place_of_a_number_is_refused_by_the_columns_name(path, table, column, value):
    changed(path, f"UPDATE {table} SET {column} = {value}")
    before = path.read_bytes()
    with Trace(path) as trace:
        codes = [finding.code for finding in trace.check() if finding.code != "nsys_warning"]
    assert codes == ["calls_without_names" if column == "nameId" else "wrong_type"]
    with pytest.raises(TraceError, match=f"of {table} holds .*, not integers"):
        everything(path)
    assert path.read_bytes() == before


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS id, x AS value FROM n"


@pytest.mark.parametrize(
    "view", ["SELECT * FROM moved", "SELECT * FROM StringIds", ENDLESS], ids=["plain", "itself", "endless"]
)
def test_a_view_in_the_place_of_a_table_is_no_table(path, view):
    changed(path, "ALTER TABLE StringIds RENAME TO moved", f"CREATE VIEW StringIds AS {view}")
    with Trace(path) as trace:
        assert "kernels_without_names" in [finding.code for finding in trace.check()]


def test_a_constraint_that_computes_for_ever_is_not_asked(path):
    endless = "CHECK (length(replace(hex(zeroblob(100000000)), '0', 'xxxx')) > 0)"
    unasked = "PRAGMA ignore_check_constraints = ON"  # or adding it would take as long
    changed(path, unasked, f"ALTER TABLE StringIds ADD COLUMN more TEXT DEFAULT 'x' {endless}")
    assert "gemm" in everything(path)


def test_a_column_that_is_computed_is_no_column(path):
    changed(path, f"ALTER TABLE {KERNEL} RENAME COLUMN demangledName TO real")
    changed(path, f"ALTER TABLE {KERNEL} ADD COLUMN demangledName AS (length(hex(zeroblob(500000000))))")
    with Trace(path) as trace, pytest.raises(TraceError, match="names of kernels are not among its strings"):
        trace.kernels()


@pytest.mark.parametrize(
    "name",
    [
        "a\rb", "a\nb", "a\r\nb", "\x1b[31mred\x1b[0m", "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "'quoted", "\x9b31m",
        "\u202egnp", "a\u2028b", "\x00", "＝1",
    ],
)  # fmt: skip
def test_a_name_breaks_no_row_colours_no_terminal_and_is_no_formula(tmp_path, name):
    path = Synthetic().range("step", 0, 100).kernel(name, at=20).write(tmp_path / "capture.sqlite")
    with Trace(path) as trace:
        table = trace.kernels()
    assert table["kernel"].tolist() == [name]
    for table_format in ("csv", "md", "json"):
        written = rendered(table, table_format).decode()
        assert visible(written.replace("\n", "")) == written.replace("\n", "")
    (_, row) = csv.reader(io.StringIO(rendered(table, "csv").decode()))
    assert row[1] == csv_cell(name) and row[1][0] not in "=+-@＝"
    assert json.loads(rendered(table, "json"))[0]["kernel"] == name
    assert pd.read_parquet(io.BytesIO(rendered(table, "parquet")))["kernel"].tolist() == [name]


def test_numbers_and_ordinary_names_are_written_as_they_are():
    table = pd.DataFrame(
        {"name": ["void f<int, -1>(a = b)", "[CUDA memset]", "é"], "ns": [-1, 0, 5], "x": [-0.5, 1, 2]}
    )
    assert with_clean_cells(table) is table


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), min_size=1, max_size=4, unique=True))
@example(["=", "'=", "''", "\\", "\\n", "\n"])
def test_any_names_come_back_from_json_and_parquet_and_break_nothing_elsewhere(tmp_path, names):
    capture = Synthetic().range("step", 0, 1000)
    for number, name in enumerate(names):
        capture.kernel(name or "-", at=10 * number).range(name or "-", 10 * number, 10 * number + 5)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        table = trace.kernels()
        everything(tmp_path / "capture.sqlite")
    assert set(table["kernel"]) == {name or "-" for name in names}
    assert {row["kernel"] for row in json.loads(rendered(table, "json"))} == set(table["kernel"])
    header, *rows = csv.reader(io.StringIO(rendered(table, "csv").decode()))
    assert [len(row) for row in rows] == [len(header)] * len(table)
    unquoted = [row[1].removeprefix("'") for row in rows]
    plain = [name for name in table["kernel"] if visible(name) == name]
    assert set(plain) <= set(unquoted)


def test_a_message_that_many_processes_repeat_is_one_line_with_their_number(tmp_path):
    capture = small()
    for process in range(200):
        capture.diagnostic(2, "No CUDA events collected. Does the process use CUDA?", process=process)
    capture.diagnostic(2, "No CUDA events collected. Does the process use CUDA?", process=7)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        messages = [finding.message for finding in trace.check() if finding.code == "nsys_warning"]
    assert [message.partition(" Does")[0] for message in messages] == [
        "nsys: Something is old: nothing is known to be lost; nothing has to be done",
        "nsys, of 200 processes: No CUDA events collected.",
    ]


def test_a_message_of_any_length_is_searched_and_told_to_a_limit(path):
    changed(path, f"UPDATE DIAGNOSTIC_EVENT SET text = '{'buffer 0 not all ' * 20_000}'")
    with Trace(path) as trace:
        (finding,) = trace.check()
    assert len(finding.message) < 700 and finding.message.count("...") == 1


def test_a_pattern_that_cannot_be_used_is_one_line_and_one_that_never_ends_ends(path):
    command = ["classes", path, "--class"]
    done = run_command(*command, "mine=(")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"kernel-tables: kernel_classes, rule 1: the pattern '(' cannot be used (missing )")
    changed(path, f"UPDATE StringIds SET value = '{'a' * 5000}' WHERE value = 'gemm'")
    done = run_command(*command, "mine=(a|a|[a-z:_]+)+$!")
    assert done.returncode == 0
