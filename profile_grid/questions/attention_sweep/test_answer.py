"""Attention alone: its table, sentences and document, from made-up runs."""

import json
from pathlib import Path

import pandas as pd
import pytest

from profile_grid.documents.documents import document_names, documents
from profile_grid.documents.summaries import Summaries, summary_tables
from profile_grid.merging.merge import provenance
from profile_grid.page import needed_tables, page
from profile_grid.results.load_runs import MeasuredRun
from profile_grid.stages.capture.timeline import empty_timeline
from profile_grid.tables.on_disk import declared_tables
from tests.profile_grid.made_up import Made
from tests.profile_grid.made_up import merged as merged_of_models
from tests.profile_grid.made_up_answers import told_of
from tests.profile_grid.made_up_operator import MACHINE, cell, merged, run, single_calls, three

NOWHERE = Path("no folder of runs")  # need not exist: attention alone has no captures
QUESTION = "attention_sweep"


def table_of(runs: list[MeasuredRun]) -> pd.DataFrame:
    return Summaries(merged(runs, NOWHERE))[QUESTION]


def document_of(runs: list[MeasuredRun]) -> str:
    tables = merged(runs, NOWHERE)
    facts = provenance(tables["runs"], {"grid": "g"}, [{"git_commit": "0a1b", "git_clean": True}])
    return documents(Summaries(tables), tables["runs"], facts, [QUESTION])[QUESTION]


def test_it_is_asked_of_runs_of_attention_alone_and_nothing_else_is():
    assert document_names(merged(three(), NOWHERE)["runs"]) == [QUESTION]
    assert QUESTION not in document_names(merged_of_models([Made()])["runs"])


def test_a_cell_is_compared_with_the_written_out_attention_of_its_own_place():
    table = table_of(three()).set_index(["variant", "context_length"])
    assert table.loc[("flash", 256), "forward_speed_up"] == pytest.approx(4.0)
    assert table.loc[("compiled", 256), "backward_speed_up"] == pytest.approx(2.0)
    assert table.loc[("flash", 256), "forward_speed_up_std"] == pytest.approx(4.0 * (2 * 0.1**2) ** 0.5)
    assert table.loc[("flash", 1024), ["forward_speed_up", "backward_speed_up"]].isna().all()  # nothing to compare with
    assert table.loc["eager", "forward_speed_up"].isna().all()


def test_the_ideal_is_what_the_data_sheet_allows_the_operator():
    (row,) = table_of([run("flash", cell(0.25), attention="flash", precision="bf16")]).to_dict("records")
    flops, moved = 2 * 8 * 256 * 257 * 64, 4 * 8 * 256 * 64 * 2
    assert row["ideal_forward_ms"] == pytest.approx(1e3 * max(flops / 989.4e12, moved / 4.8e12))
    assert row["forward_flop_per_s"] == pytest.approx(flops / 0.25e-3)


def test_its_tables_are_as_they_are_declared():
    tables = merged(three(), NOWHERE)
    for name, table in (tables | summary_tables(tables)).items():
        declared_tables()[name].check(table)


def test_the_sentences_say_what_is_fastest_where_and_where_memory_ends():
    text = told_of(QUESTION, merged(three(), NOWHERE))
    assert text.startswith("In fp32 at context 256, head size 64, flash is 4.00 times as fast as eager attention (")
    assert "Clearly fastest for both passes in fp32: at context 256 flash; at context 1024 flash." in text
    assert "Out of memory: eager in fp32 from context 1024." in text
    memory = "Memory in use before the backward pass at context 1024, at most"
    assert f"{memory}: in fp32 flash 512 MiB and compiled 1.0 GiB." in text


def test_the_document_has_the_tables_of_the_course_with_a_word_where_there_is_no_figure():
    reason = "attention cudnn: No kernel. Flash kernel not used because: Flash has been runtime disabled."
    refused = cell(None, 256, None, "unsupported", reason=reason)
    text = document_of([*three(), run("cudnn", refused, attention="cudnn")])
    memory = text.partition("Memory in use before the backward pass, in fp32:")[2]
    lines = [[word.strip() for word in line.split("|")[1:-1]] for line in memory.splitlines() if line.startswith("|")]
    assert lines[0] == ["head size", "context", "eager", "flash", "compiled", "cudnn"]
    assert lines[2:] == [
        ["64", "256", "1.0 GiB", "1.0 GiB", "1.0 GiB", "unsupported"],
        ["64", "1024", "OOM", "512 MiB", "1.0 GiB", "–"],
    ]
    assert "Not supported here:\n\n- attention cudnn: No kernel.\n" in text


def test_single_calls_give_the_lead_their_share_of_the_peak_and_tables():
    runs = [
        run("eager", cell(9.0, **single_calls(1.0))), run("flash", cell(9.0, **single_calls(0.25)), attention="flash"),
    ]  # fmt: skip
    table = table_of(runs).set_index("variant")
    products = 2 * 8 * 64 * sum(range(1, 257))  # FLOPs of one: a multiplication and an addition for each score
    assert table.loc["flash", "bench_both_of_peak"] == pytest.approx(7 * products / 0.75e-3 / 67e12)
    assert table.loc["flash", "bench_backward_of_peak"] == pytest.approx(5 * products / 0.5e-3 / 67e12)
    text = document_of(runs)
    assert "flash is 4.00 times as fast as eager attention (0.750 instead of 3.00 ms for both passes)" in text
    assert "The largest shares of the peak FLOP/s, forward and backward pass: in fp32 flash " in text
    assert "Forward and backward pass, single calls, ms, in fp32:" in text and "- single calls: CUDA events, as" in text


def test_a_function_of_the_user_has_its_error_in_the_document_and_a_failed_one_its_reason():
    runs = [
        *three(),
        run("mine", cell(0.5, output_error=0.98, gradient_error=0.5), attention="mine:flash"),
        run("other", cell(None, 1024, None, "failed", reason="mine:other: raised ValueError"), attention="mine:other"),
    ]  # fmt: skip
    text = document_of(runs)
    assert "- Wrong, so that its times do not count: mine:flash in fp32 from context 256 (errors of up to 0.98" in text
    assert "both combinations" in text  # flash and compiled, faster than eager; a wrong variant is in no comparison
    assert "1.0e−06 / 2.0e−06" in text and "9.8e−01 / 5.0e−01" in text
    assert "- Failed: mine:other in fp32 from context 1024; the reasons are below the tables." in text
    assert "Failed:\n\n- mine\\:other: raised ValueError" in text
    assert "- module:function: a function of the user" in text
    assert "module:function" not in document_of(three())


def test_figures_of_two_machines_never_share_a_table():
    other = run("other", cell(9.0), attention="math", machine=MACHINE | {"device_name": "NVIDIA A10"})
    text = document_of([*three(), other])
    assert text.count("Forward pass with the wait for the device, ms, in fp32:") == 2 and "## NVIDIA A10" in text


def test_the_page_has_the_sentences_the_figure_and_a_row_for_every_cell_and_nothing_of_steps():
    tables = merged(three(), NOWHERE)
    tables |= summary_tables(tables)
    needed = {name: tables[name] for name in needed_tables(tables["runs"])}
    html = page(needed, {"grid": "g"}, empty_timeline(), {QUESTION: b"PNG"})
    assert "Out of memory: eager in fp32 from context 1024." in html
    assert 'data-chart="attention_sweep"' in html and "data:image/png;base64,UE5H" in html
    assert "Inside a step" not in html and "Every kernel" not in html
    data = json.loads(html.partition('id="rows-attention_sweep">')[2].partition("</script>")[0])
    names = [column["name"] for column in data["columns"]]
    assert [row[names.index("status")] for row in data["rows"]] == ["complete", "out_of_memory"] + 4 * ["complete"]
    assert [row[names.index("context_length")] for row in data["rows"]] == 3 * [256, 1024]
    assert html.count("<select name=") == 3 and '<select name="context_length"' in html
