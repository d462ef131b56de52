"""Text of documents: numbers, selections, and that nothing from outside breaks Markdown."""

import html

import jinja2
import markdown
import pandas as pd
import pytest

from tests.workflow.small_tables import make_run, make_tables
from workflow import text

NASTY = "void f<T>(`a` | *b*)\n\n# no heading $x$ <script>"


def render(template: str, *runs: dict, **facts) -> str:
    tables = make_tables(*(runs or [make_run("a")]))
    return text.environment(tables).from_string(template).render(**facts)


NUMBERS = [
    ("12.3456 | number", "12.3"), ("1234 | number", "1234"), ("0.012345 | number", "0.0123"), ("0 | number", "0"),
    ("-9.996 | number", "−10.0"), ("12.3456 | number(2)", "12"), ("none | number", "–"),
    ("1003.0 | amount", "1,003"), ("72.5 | amount", "72.5"), ("0.3821 | percent", "38.2 %"),
    ("0.0001 | percent", "< 0.1 %"), ("0 | percent", "0.0 %"), ("-0.123 | points", "−12.3"),
    ("0.00001 | points", "+0.0"), ("85983232 | size", "82 MiB"), ("150109880320 | size", "139.8 GiB"),
    ("24.1e12 | rate", "24.1 TFLOP/s"), ("500 | rate", "500 FLOP/s"), ("12.345 | spread(0.42)", "12.3 ± 0.4"),
    ("1.0423 | spread(0.012)", "1.042 ± 0.012"), ("5 | spread(none)", "5.00"), ("250 | spread(30)", "250 ± 30"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "written"), NUMBERS)
def test_a_number_is_written(expression, written):
    assert render("{{ " + expression + " }}") == written


def test_a_filter_of_numbers_writes_every_value_of_a_column():
    column = pd.Series([0.25, None], index=["x", "y"])
    assert list(text.write_each(text.write_percent, column)) == ["25.0 %", "–"]


def test_several_numbers_become_a_range_a_count_or_the_commonest():
    values, names = pd.Series([1.0, 3.0, 2.0, None]), pd.Series(["a", "b", "a"])
    assert text.write_range(values, unit=" ms", median=True) == "1.00 to 3.00 ms (median 2.00 ms)"
    assert text.write_range(values[:1], "percent") == "100.0 %" and text.write_range(values[3:]) == "–"
    assert [text.write_count(pd.Series(truths)) for truths in ([True, False], [True, True], [False], [True])] == [
        "1 of 2 runs", "all 2 runs", "none of 1 run", "the only run",
    ]  # fmt: skip
    assert text.write_commonest(names) == "`a` in 2 of 3 runs"


def test_a_missing_fact_is_an_error_and_not_an_empty_text():
    with pytest.raises(jinja2.UndefinedError):
        render("{{ tables.nothing.here }}")


def test_a_selection_has_the_runs_of_a_mode_in_the_order_of_the_grid():
    runs = [make_run("b", model="b"), make_run("a", model="a"), make_run("train", model="a", mode="train_step")]
    tables = make_tables(*runs)
    rows = text.select(tables["phases"][::-1].query("phase == 'step'"), tables["runs"], "forward")
    assert list(rows["run"].unique()) == ["b", "a"] and rows.index.names == ["model", "context"]
    assert render("{{ inference }} {{ training }}", *runs) == "forward train_step"


def test_a_dimension_that_varies_is_in_the_index_and_is_named_only_where_it_is_no_default():
    runs = [make_run("a"), make_run("b", precision="bf16"), make_run("c", checkpoint="2", gpus=2, parallel="ddp")]
    tables = make_tables(*runs)
    rows = text.select(tables["runs"], tables["runs"], "forward")
    assert rows.index.names == ["model", "context", "precision", "checkpoint", "gpus", "parallel"]
    assert [text.describe_run(tables["runs"], run) for run in "abc"] == [
        "tiny at context 128, forward pass", "tiny at context 128, forward pass, bf16",
        "tiny at context 128, forward pass, checkpoint 2, 2 GPUs, ddp",
    ]  # fmt: skip
    table = text.write_markdown(rows[["d_model"]])
    third = [row.split("|")[3].strip() for row in table.splitlines()]
    assert [third[0], *third[2:]] == ["variant", "–", "bf16", "checkpoint 2, 2 GPUs, ddp"]
    assert list(text.keep_plain(rows)["run"]) == ["a"]


def test_a_run_without_a_number_has_its_status_in_a_table():
    runs = [make_run("a"), make_run("b", model="big", timing_status="out_of_memory", capture_status="out_of_memory")]
    rows = "{% set rows = tables.phases.query(\"phase == 'step' and step == 0\") | select('forward') %}"
    written = render(rows + "{{ rows.kernels | amount | filled('forward') | by('context') | markdown }}", *runs)
    assert "OOM" in written.splitlines()[3] and "10" in written.splitlines()[2]


def test_columns_of_different_runs_stand_in_the_order_of_the_grid():
    runs = [make_run("z", model="z"), make_run("a", model="a"), make_run("z2", model="z", mode="train_step")]
    template = (
        "{{ columns({'x': (tables.runs | select('train_step')).run, 'y': (tables.runs | select('forward')).run}) }}"
    )
    assert render(template, *runs).split() == [
        "x",
        "y",
        "model",
        "context",
        "z",
        "128",
        "z2",
        "z",
        "a",
        "128",
        "NaN",
        "a",
    ]


def test_text_from_outside_breaks_no_table_and_stays_readable():
    frame = pd.DataFrame({"cell": [text.escape(NASTY)], "code": [text.write_code(NASTY)]})
    frame.index = pd.MultiIndex.from_tuples([(NASTY, 1)], names=["model", "context"])
    html = markdown.markdown(text.write_markdown(frame), extensions=["tables"])
    assert html.count("<tr>") == 2 and html.count("<td") == 4 and "<script>" not in html and "<h1>" not in html
    assert html.count("f&lt;T&gt;") >= 1 and "<em>" not in html


@pytest.mark.parametrize("name", ["a`b", "``a", "a|b", "`", "plain"])
def test_code_shows_every_backtick(name):
    html = markdown.markdown(text.write_code(name))
    assert html == f"<p><code>{name}</code></p>"


@pytest.mark.parametrize("name", ["a*b*c", "_x_", "masked_fill", "[a](b)", "a\\b", "<T>", "&lt;", "$x$ ~y~ ^z^ |"])
def test_an_escaped_text_is_shown_as_it_was(name):
    assert html.unescape(markdown.markdown(text.escape(name))) == f"<p>{name}</p>"


def test_the_machine_is_one_sentence_that_names_all_values():
    machine = text.describe_machine(make_tables(make_run("a"), make_run("b", torch="2.12"))["runs"])
    assert machine == "Measured on NVIDIA H200, driver 580, CUDA 13.0, PyTorch 2.11 and 2.12, Nsight Systems 2025.3."


def test_what_was_not_measured_is_listed_with_its_reason():
    failed = {"timing_status": "out_of_memory", "capture_status": "out_of_memory", "oom_during": "initialise"}
    failed |= {"oom_requested_bytes": 2**20, "oom_free_bytes": 0, "oom_total_bytes": 2**30}
    partly = {"energy_status": "unsupported", "reason": "no counter | here"}
    runs = make_tables(
        make_run("a", energy_status="not_asked"), make_run("b", model="b", **failed), make_run("c", **partly)
    )
    assert text.list_missing(runs["runs"]) == [
        "b at context 128, forward pass: out of memory in initialization: 1 MiB requested, 0 B free of 1.0 GiB",
        "tiny at context 128, forward pass (energy): unsupported: no counter &#124; here",
    ]


def test_a_typical_run_is_the_lower_of_two_in_the_middle():
    assert text.find_middle(pd.DataFrame({"ms": [4.0, 1.0, 3.0, 2.0, None]}), "ms")["ms"] == 2.0
