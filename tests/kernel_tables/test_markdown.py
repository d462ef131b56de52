import pandas as pd
import pytest

from kernel_tables.markdown import MarkdownTable, code, escaped, pipe_table
from kernel_tables.output import markdown

HOSTILE = r"<script>alert(1)</script>|$\input{x}$"
NAMES = [
    HOSTILE,
    "plain_name-1.2",
    "*bold* _it_ __init__ ~x~ [a](b) ![c](d)",
    "a|b\\|c\\",
    "`tick` ``two`` &amp; &lt;",
    "# heading",
    "1. item",
    "- item",
    "void at::native::vectorized_elementwise_kernel<(int)4, float, at::detail::Array<char *, 3>>(int, T3)",
    "@somebody https://example.org :smile: www",
    "Ünïcødé × 核",
]


def plain(markdown: str, reader: str) -> str:
    """What a reader of Markdown shows as text; two readers must agree: plain CommonMark and GitHub's."""
    pypandoc = pytest.importorskip("pypandoc", reason="pypandoc_binary is not installed")
    options = ["--wrap=none", "--columns=1000"]
    return pypandoc.convert_text(markdown, "plain", format=reader, extra_args=options).strip()


@pytest.mark.parametrize("reader", ["commonmark-raw_html+pipe_tables", "gfm"])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_renders_as_itself_in_text_in_code_and_in_a_table(name, reader):
    assert plain(f"x {escaped(name)} y", reader) == f"x {name} y"
    assert plain(escaped(name), reader) == name
    assert plain(f"- {code(name)}", reader) == f"- {name}"
    cells = plain(pipe_table(MarkdownTable(("a", "b"), ((code(name, in_table=True), escaped(name)),))), reader)
    assert cells.splitlines()[2].strip().count(name) == 2


def test_names_that_need_no_escape_stay_readable():
    assert escaped("small_ctx512 2.7B forward + backward") == "small_ctx512 2.7B forward + backward"
    assert escaped("2026-01-01T00:20:00Z") == "2026-01-01T00:20:00Z"


def test_a_name_never_takes_more_than_one_line_and_never_hides():
    assert code("a\nb\x00c") == "`a b\N{REPLACEMENT CHARACTER}c`"
    assert code("  ") == "(no name)"


def test_a_table_lines_up_in_its_source():
    table = MarkdownTable(("model", "context", "ms"), (("small", "128", "4.0"), ("large", "1024", "27.5")))
    assert pipe_table(table) == (
        "| model | context |   ms |\n"
        "| :---- | :------ | ---: |\n"
        "| small | 128     |  4.0 |\n"
        "| large | 1024    | 27.5 |"
    )  # fmt: skip


def test_a_missing_number_of_any_type_is_an_empty_cell():
    table = pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [0.5, None], "c": ["x", None]})
    assert markdown(table).splitlines()[-1] == "|  |  |  |"
