"""The formats of tables, and names from a capture in them: they are shown, and do nothing."""

import csv
import io
import json

import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kernel_tables.output import code, compact_table, csv_cell, duration, escaped, percent, visible, write_table

NAMES = [
    r"<script>alert(1)</script>|$\input{x}$", "plain_name-1.2", "*bold* _it_ __init__ ~x~ [a](b) ![c](d)", "a|b\\|c\\",
    "`tick` ``two`` &amp; &lt;", "# heading", "1. item", "- item",
    "@somebody https://example.org :smile: www", "Ünïcødé × 核",
]  # fmt: skip
HOSTILE = [
    "a\rb", "a\nb", "\x1b[31mred\x1b[0m", "=1+1", "+1", "@SUM(A1)", "\t=1", "'q", "\x9b31m", "\u202eg", "\x00", "＝1",
]  # fmt: skip


def written(table, table_format: str, folder) -> bytes:
    write_table(table, folder / "table", table_format)
    return (folder / "table").read_bytes()


@pytest.mark.parametrize("reader", ["commonmark-raw_html+pipe_tables", "gfm"])
def test_a_name_renders_as_itself_in_text_in_code_and_in_a_table(reader):
    pypandoc = pytest.importorskip("pypandoc", reason="pypandoc_binary is not installed")
    rows = [(code(name, in_table=True), escaped(name)) for name in NAMES]
    texts = [text for name in NAMES for text in (f"x {escaped(name)} y", escaped(name), code(name))]
    source = "\n\n<!-- -->\n\n".join([*texts, compact_table(("a", "b"), rows)])
    plain = pypandoc.convert_text(source, "plain", format=reader, extra_args=["--wrap=none", "--columns=1000"])
    lines = [line.strip() for line in plain.splitlines()]
    for name in NAMES:
        assert f"x {name} y" in lines and lines.count(name) == 2
        assert any(line.count(name) == 2 for line in lines), f"the row of {name}"


def test_names_that_need_no_escape_stay_readable_and_none_takes_two_lines_or_hides():
    assert escaped("small_ctx512 2.7B forward + backward") == "small_ctx512 2.7B forward + backward"
    assert escaped("2026-01-01T00:20:00Z") == "2026-01-01T00:20:00Z"
    assert code("a\nb\x00c") == r"`a\nb\x00c`"
    assert code("  ") == "(no name)"
    assert visible("a\nb\u202e", keep_newlines=True) == "a\nb\\u202e"


def test_every_format_holds_the_same_table_with_missing_numbers(tmp_path):
    frame = pd.DataFrame({"name": ["a|b", "=1"], "n": [1, 2], "x": [0.1, None], "is": [True, False]})
    table = {name: frame[name].tolist() if name == "name" else frame[name].to_numpy() for name in frame}
    for one in (frame, table):
        assert written(one, "csv", tmp_path).decode() == "name,n,x,is\na|b,1,0.1,True\n'=1,2,,False\n"
        rows = json.loads(written(one, "json", tmp_path))
        assert rows == [{"name": "a|b", "n": 1, "x": 0.1, "is": True}, {"name": "=1", "n": 2, "x": None, "is": False}]
        _, *markdown = written(one, "md", tmp_path).decode().splitlines()
        assert markdown == ["| --- | ---: | ---: | --- |", "| a&#124;b | 1 | 0.100 | True |", r"| \=1 | 2 |  | False |"]
        read = pd.read_parquet(io.BytesIO(written(one, "parquet", tmp_path)))
        pd.testing.assert_frame_equal(read, frame, check_dtype=False)
    integers = pd.DataFrame({"a": pd.array([1, None], "Int64")})
    assert written(integers, "md", tmp_path).decode().splitlines()[-1] == "|  |"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), min_size=1, max_size=4, unique=True))
@example(HOSTILE)
@example(["=", "'=", "''", "\\", "\\n", "\n"])
def test_a_name_breaks_no_row_colours_no_terminal_is_no_formula_and_comes_back(tmp_path, names):
    table = {"kernel": names}
    texts = {name: written(table, name, tmp_path) for name in ("csv", "md", "json", "parquet")}
    for name in ("csv", "md", "json"):
        text = texts[name].decode()
        assert visible(text.replace("\n", "")) == text.replace("\n", "")
    _, *rows = csv.reader(io.StringIO(texts["csv"].decode()))
    assert [row[:1] or [""] for row in rows] == [[csv_cell(name)] for name in names]
    assert not any(row and row[0].startswith(tuple("=+-@＝")) for row in rows)
    assert [row["kernel"] for row in json.loads(texts["json"])] == names
    assert pd.read_parquet(io.BytesIO(texts["parquet"]))["kernel"].tolist() == names
    assert texts["md"].decode().count("\n") == 2 + len(names)


def test_times_have_three_digits_and_a_unit():
    times = [0, 999, 1000, 99_949, 999_499, 1_234_567, 61e9, float("nan")]
    assert [*map(duration, times)] == ["0 ns", "999 ns", "1.00 µs", "99.9 µs", "999 µs", "1.23 ms", "61.0 s", "–"]
    assert [percent(share) for share in (0, 0.0001, 0.5)] == ["0.0 %", "< 0.1 %", "50.0 %"]
