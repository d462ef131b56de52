"""Text of documents: numbers, selections, and that nothing from outside breaks Markdown."""

import html

import jinja2
import markdown
import pandas as pd
import pytest

from tests.workflow.small_tables import make_run, make_tables
from workflow import text

NASTY = "void f<T>(`a` | *b*)\n\n# no heading $x$ <script>"
NUMBERS = [
    ("12.3456 | number", "12.3"), ("1234 | number", "1234"), ("0.012345 | number", "0.0123"), ("0 | number", "0"),
    ("-9.996 | number", "−10.0"), ("12.3456 | number(2)", "12"), ("none | number", "–"), ("1003.0 | amount", "1,003"),
    ("0.3821 | percent", "38.2 %"), ("0.0001 | percent", "< 0.1 %"), ("-0.1234 | percent", "−12.3 %"),
    ("85983232 | size", "82 MiB"), ("24.1e12 | rate", "24.1 TFLOP/s"), ("12.345 | spread(0.42)", "12.3 ± 0.4"),
    ("1.0423 | spread(0.012)", "1.042 ± 0.012"), ("5 | spread(none)", "5.00"),
]  # fmt: skip


def render(template: str, *runs: dict) -> str:
    return text.environment(make_tables(*(runs or [make_run("a")]))).from_string(template).render()


@pytest.mark.parametrize(("expression", "written"), NUMBERS)
def test_a_number_is_written_and_a_missing_fact_is_an_error(expression, written):
    assert render("{{ " + expression + " }}") == written
    with pytest.raises(jinja2.UndefinedError):
        render("{{ tables.nothing.here }}")


def test_several_numbers_become_a_range_or_a_count():
    values = pd.Series([1.0, 3.0, 2.0, None])
    assert list(text.write_each(text.write_amount, values)) == ["1", "3", "2", "–"]
    assert text.write_range(values, unit=" ms") == "1.00 to 3.00 ms"
    assert text.write_range(values[:1], "percent") == "100.0 %" and text.write_range(values[3:]) == "–"
    counts = [text.write_count(pd.Series(truths)) for truths in ([True, False], [True, True], [False], [True])]
    assert counts == ["1 of 2 runs", "both runs", "none of 1 run", "the only run"]
    runs = pd.concat([make_tables(make_run("a"))["runs"]] * 5).assign(ms=[4.0, 1.0, 3.0, 2.0, None])
    assert text.find_middle(runs, "ms")["ms"] == 2.0
    assert text.find_middle(runs.assign(precision=["fp32", *["bf16"] * 4]), "ms")["ms"] == 4.0  # the default alone


def test_selections_and_columns_of_them_stand_in_the_order_of_the_grid():
    runs = [make_run("z", model="z"), make_run("a", model="a"), make_run("train", model="a", mode="train_step")]
    tables = make_tables(*runs)
    rows = text.select(tables["phases"][::-1].query("phase == 'step'"), tables["runs"], "forward")
    assert list(rows["run"].unique()) == ["z", "a"] and rows.index.names == ["model", "context"]
    template = "{{ columns({'x': (runs | select(training)).run, 'y': (runs | select(inference)).run}) }}"
    assert render(template, *runs).split()[4:] == ["z", "128", "NaN", "z", "a", "128", "train", "a"]


def test_a_dimension_that_varies_is_in_the_index_and_is_named_only_where_it_is_no_default():
    runs = [make_run("a"), make_run("b", precision="bf16"), make_run("c", checkpoint="2", gpus=2, parallel="ddp")]
    runs = make_tables(*runs)["runs"]
    rows = text.select(runs, runs, "forward")
    assert rows.index.names == ["model", "context", "precision", "checkpoint", "gpus", "parallel"]
    words = ["", ", bf16", ", checkpoint 2, 2 GPUs, ddp"]
    assert [text.describe_run(runs, run) for run in "abc"] == [f"tiny at context 128, forward pass{w}" for w in words]
    table = text.write_markdown(rows[:2][["d_model"]]).splitlines()  # of what differs in these alone
    assert [row.split()[5] for row in (table[0], *table[2:])] == ["precision", "fp32", "bf16"]


def test_text_from_outside_breaks_no_table_and_stays_as_it_was():
    frame = pd.DataFrame({"cell": [text.escaped(NASTY)], "code": [text.code(NASTY)]})
    frame.index = pd.MultiIndex.from_tuples([(NASTY, 1)], names=["model", "context"])
    page = markdown.markdown(text.write_markdown(frame), extensions=["tables"])
    assert page.count("<tr>") == 2 and page.count("<td") == 4 and "<script>" not in page and "<h1>" not in page
    for name in ("a*b*c", "_x_", "masked_fill", "[a](b)", "a\\b", "<T>", "&lt;", "$x$ ~y~ ^z^ |"):
        assert html.unescape(markdown.markdown(text.escaped(name))) == f"<p>{name}</p>"


def test_machines_and_what_was_not_measured_are_named():
    failed = {"timing_status": "out_of_memory", "capture_status": "out_of_memory", "oom_during": "initialise"}
    failed |= {"oom_requested_bytes": 2**20, "oom_total_bytes": 2**30}
    partly = {"energy_status": "unsupported", "reason": "no counter | here", "torch": "2.12"}
    runs = [make_run("a", energy_status="not_asked"), make_run("b", model="b", **failed), make_run("c", **partly)]
    runs = make_tables(*runs)["runs"]
    machine = "Measured on NVIDIA H200, driver 580, CUDA 13.0, PyTorch 2.11 and 2.12, Nsight Systems 2025.3."
    assert text.describe_machine(runs) == machine
    assert text.list_missing(runs) == [
        "b at context 128, forward pass: out of memory in initialization, where 1 MiB more were requested, on a GPU of"
        " 1.0 GiB",
        "tiny at context 128, forward pass (energy): unsupported: no counter &#124; here",
    ]
