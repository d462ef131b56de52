"""The attention sweep: rows of a grid, their table, document and figure, from made-up results."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from profile_grid.figures.paper import on_paper
from profile_grid.measuring.results import FORMAT, BadResult, Checkout, MachineFacts, OutOfMemory
from profile_grid.measuring.sweep import Cell, MeasuredRow, RowResult, read_row
from profile_grid.merging.measured_runs import StaleRun
from profile_grid.study.runs import checked_config
from profile_grid.study.schema import ConfigError
from profile_grid.study.sweep import is_sweep, row_specification, sweep_rows
from profile_grid.study.table_spec import WrongTable
from profile_grid.sweep.dictionary import check_sweep_table, dictionary
from profile_grid.sweep.document import document
from profile_grid.sweep.figure import SWEEP
from profile_grid.sweep.page import menus, page
from profile_grid.sweep.rows import read_rows, rows_table, sweep_provenance
from profile_grid.sweep.sentences import sentences
from profile_grid.sweep.table import ATTENTION_SWEEP_TABLE, LEADING, sweep_table
from tests.profile_grid.made_up_results import MACHINE as CPU

ROOT = Path(__file__).parents[2]
PRODUCT = {"program": "attention", "head_dims": [16, 64], "context_lengths": [256, 1024]}
MACHINE = MachineFacts(**CPU | {"device": "cuda", "device_name": "NVIDIA H200"})
GIB = 2**30


def config(*products: dict) -> dict:
    values = yaml.safe_load((ROOT / "config.yaml").read_text())
    return values | {"grid": "g", "grids": {"g": list(products)}}


def made(ms: float | None, context: int = 256, gib: float | None = 1.0, status: str = "complete", **changes) -> Cell:
    """A cell whose forward passes take `ms` ± a tenth, and whose backward passes twice as long."""
    forward = [] if ms is None else [ms / 1e3 * factor for factor in (0.9, 1.0, 1.1)]
    held = None if gib is None else int(gib * GIB)
    cell = Cell(context, status, None, None, forward, [2 * one for one in forward], None, held, held)
    return replace(cell, **changes)


def row(*cells: Cell, machine=MACHINE, **dimensions) -> RowResult:
    plain = {"precision": "fp32", "batch_size": 8, "compile": "off", "attention": "eager", "head_dim": 64}
    program = MeasuredRow({"dimensions": plain | dimensions}, list(cells), machine, None, 1.0)
    return RowResult(FORMAT, {}, "00", program, [], {"all": 5.0}, "2026-01-02T03:04:05Z", Checkout("0a1b", True))


def made_document(rows: dict[str, RowResult]) -> str:
    return document(sweep_table(rows), rows_table(rows), sweep_provenance(rows, {"grid": "g"}))


def three() -> dict[str, RowResult]:
    out = made(None, 1024, None, "out_of_memory", out_of_memory=OutOfMemory("context 1024", 2 * GIB, GIB, 140 * GIB))
    return {
        "eager": row(made(1.0), out),
        "flash": row(made(0.25), made(2.0, 1024, 0.5), attention="flash"),
        "compiled": row(made(0.5, compile_seconds=4.0), made(5.0, 1024), compile="on"),
    }


def test_a_row_is_every_value_but_the_context_length_which_its_process_goes_through():
    rows = sweep_rows(checked_config(config(PRODUCT | {"attentions": ["eager", "flash"], "precisions": ["bf16"]})))
    assert list(rows) == [
        "attention_d16_bf16_bs8", "attention_d16_bf16_bs8_flash-attention", "attention_d64_bf16_bs8",
        "attention_d64_bf16_bs8_flash-attention",
    ]  # fmt: skip
    assert {one.context_lengths for one in rows.values()} == {(256, 1024)}


def test_a_row_that_two_products_list_has_the_lengths_of_both():
    rows = sweep_rows(config(PRODUCT, PRODUCT | {"context_lengths": [512], "head_dims": [16]}))
    assert rows["attention_d16_bs8"].context_lengths == (256, 512, 1024)
    assert rows["attention_d64_bs8"].context_lengths == (256, 1024)


def test_the_process_of_a_row_is_told_its_dimensions_lengths_and_passes():
    values = config(PRODUCT | {"compiles": [True]})  # as YAML reads a bare on
    told = json.loads(row_specification(values, sweep_rows(values)["attention_d16_bs8_compile-on"]))["program"]
    assert told["dimensions"] == {
        "head_dim": 16, "precision": "fp32", "batch_size": 8, "compile": "on", "attention": "eager",
    }  # fmt: skip
    assert (told["context_lengths"], told["measured_passes"]) == ([256, 1024], 100)


@pytest.mark.parametrize(
    ("product", "message"),
    [
        ({"attentions": ["fastest"]}, "grids.g.0.attentions.0: 'fastest' is not one of"),
        ({"models": ["small"]}, "unknown key 'models'; known keys: program, head_dims"),
        ({"program": "softmax"}, "grids.g.0.program: 'softmax' is not one of ['attention']"),
        ({"compiles": ["on"], "attentions": ["flash"]}, "compile on with attention flash: a fused kernel"),
        ({"compiles": ["attention"]}, "compile attention: there is nothing but attention"),
    ],
)
def test_what_cannot_be_measured_is_said_while_planning_in_one_line(product, message):
    with pytest.raises(ConfigError) as error:
        sweep_rows(checked_config(config(PRODUCT | product)))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_grid_is_of_models_or_of_attention():
    models = {"models": ["small"], "context_lengths": [512], "modes": ["forward"]}
    assert is_sweep(config(PRODUCT)) and not is_sweep(config(models))
    with pytest.raises(ConfigError, match="program attention stands beside models; give it a grid of its own"):
        is_sweep(config(PRODUCT, models))


def test_a_cell_stands_beside_the_written_out_attention_of_its_own_place():
    table = sweep_table(three()).set_index(["variant", "context_length"])
    assert table.loc[("flash", 256), "forward_speed_up"] == pytest.approx(4.0)
    assert table.loc[("compiled", 256), "backward_speed_up"] == pytest.approx(2.0)
    assert table.loc[("flash", 256), "forward_speed_up_std"] == pytest.approx(4.0 * (2 * 0.1**2) ** 0.5)
    assert table.loc[("flash", 1024), ["forward_speed_up", "backward_speed_up"]].isna().all()  # nothing to compare with
    assert table.loc["eager", "forward_speed_up"].isna().all()


def test_the_ideal_is_what_the_data_sheet_allows_the_operator():
    (cell,) = sweep_table({"flash": row(made(0.25), attention="flash", precision="bf16")}).to_dict("records")
    flops, moved = 2 * 8 * 256 * 257 * 64, 4 * 8 * 256 * 64 * 2
    assert cell["ideal_forward_ms"] == pytest.approx(1e3 * max(flops / 989.4e12, moved / 4.8e12))
    assert cell["forward_flop_per_s"] == pytest.approx(flops / 0.25e-3)


def test_every_column_is_described():
    table = sweep_table(three())
    assert list(table.columns) == ATTENTION_SWEEP_TABLE.names
    assert list(table.columns)[: len(LEADING)] == LEADING


def test_the_sentences_say_what_is_fastest_where_and_where_memory_ends():
    text = " ".join(sentences(sweep_table(three())))
    assert text.startswith("In fp32, fastest in forward and backward pass together is at context 256 and 1024 flash. ")
    assert "Times as fast as written out in fp32: flash × 4.00 forward and × 4.00 backward and compiled × 2.00" in text
    assert "In fp32 memory runs out for eager from context 1024 on." in text
    assert "In use before the backward pass at context 1024 in fp32: flash 512 MiB and compiled 1.0 GiB." in text


def test_the_document_has_the_tables_of_the_course_with_a_word_where_there_is_no_figure():
    rows = three() | {"cudnn": row(made(None, 256, None, "unsupported", reason="attention cudnn: No kernel."),
                                   attention="cudnn")}  # fmt: skip
    text = made_document(rows)
    memory = text.partition("In use before the backward pass, in fp32:")[2]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in memory.splitlines() if line.startswith("|")]
    assert lines[0] == ["d", "context", "eager", "flash", "compiled", "cudnn"]
    assert lines[2:] == [
        ["64", "256", "1.0 GiB", "1.0 GiB", "1.0 GiB", "unsupported"],
        ["64", "1024", "OOM", "512 MiB", "1.0 GiB", "–"],
    ]
    assert "Not supported here in fp32: attention cudnn: No kernel." in text


def test_the_page_has_the_sentences_the_figure_and_a_line_for_every_cell():
    table, rows = sweep_table(three()), rows_table(three())
    html = page(table, rows, sweep_provenance(three(), {"grid": "g"}), b"PNG")
    assert "In fp32 memory runs out for eager from context 1024 on." in html
    assert 'data-chart="attention_sweep"' in html and "data:image/png;base64,UE5H" in html
    data = json.loads(html.partition('id="rows-attention_sweep">')[2].partition("</script>")[0])
    status = [column["name"] for column in data["columns"]].index("status")
    assert [cells[status] for cells in data["rows"]] == ["complete", "out_of_memory"] + 4 * ["complete"]
    assert [menu.column for menu in menus(table)] == ["context_length", "variant"]


def test_every_column_of_both_tables_is_described_and_no_other_is_taken():
    assert all(f"`{column}`" in dictionary() for column in (*sweep_table(three()), *rows_table(three())))
    with pytest.raises(WrongTable, match="table sweep_rows: columns without a declaration: odd"):
        check_sweep_table("sweep_rows", rows_table(three()).assign(odd=1))


def test_a_row_that_would_be_measured_otherwise_now_is_named(tmp_path):
    values = {
        "format": FORMAT,
        "specification": {"program": {"seed": 1}},
        "sources": "00",
        "program": None,
        "files": {},
    }
    (tmp_path / "row").mkdir()
    (tmp_path / "row/sweep.json").write_text(json.dumps(values))
    with pytest.raises(StaleRun, match=r"the settings have changed: program\.seed was 1 and is 2"):
        read_rows([{"run": "row", "specification": {"program": {"seed": 2}}}], tmp_path, "00")


def test_figures_of_two_machines_never_share_a_table():
    rows = three() | {"other": row(made(9.0), attention="math", machine=replace(MACHINE, device_name="NVIDIA A10"))}
    text = made_document(rows)
    assert text.count("Forward pass, ms, in fp32:") == 2 and "## NVIDIA A10" in text


def test_the_figure_has_a_point_for_every_cell_with_times_and_a_cross_for_every_other():
    table, machines = sweep_table(three()), rows_table(three())
    chart = on_paper(SWEEP, {"runs": machines, "attention_sweep": table})
    data = [one for rows in chart["datasets"].values() for one in rows]
    assert len([one for one in data if "both_low" in one and one["status"] == "complete"]) == 5
    assert {one["label"] for one in data if "label" in one} == {"eager: out of memory"}
    assert SWEEP.draw({"runs": machines, "attention_sweep": table}).notes[-1] == "Out of memory: eager in fp32 at 1024."
    assert SWEEP.caption({"runs": machines, "attention_sweep": table}).startswith("Times as fast as written out: flash")


def test_a_damaged_row_is_named_with_the_command_that_makes_it_again(tmp_path):
    path = tmp_path / "sweep.json"
    path.write_text("{}")
    with pytest.raises(BadResult, match=r"sweep\.json: format is missing; make it again"):
        read_row(path)
