"""Attention alone: from results of cells to the table, the figure and the document."""

import pandas as pd
import pytest

from cs336_model.results import Attention, Cell
from workflow import text
from workflow.scripts import attention_sweep
from workflow.scripts.merge import list_cells
from workflow.tables import make_table

MS = {  # of a forward and of a backward pass, by attention and context length; None: out of memory
    ("eager", 256): 1.0, ("eager", 1024): 2.0, ("eager", 4096): 16.0, ("eager", 16384): None,
    ("flash", 256): 0.5, ("flash", 1024): 0.5, ("flash", 4096): 1.0, ("flash", 16384): 9.0,
    ("mine:wrong", 256): 0.1, ("mine:wrong", 1024): 0.1, ("mine:wrong", 4096): 0.1, ("mine:wrong", 16384): 0.1,
}  # fmt: skip


def make_cell(attention: str, length: int, ms: float | None) -> Cell:
    if ms is None:
        return Cell(context_length=length, status="out_of_memory", reason="no memory")
    return Cell(
        context_length=length, status="complete", forward_seconds=[ms / 4e3] * 2, backward_seconds=[3 * ms / 4e3],
        output_error=1.2 if ":" in attention else 0.001, gradient_error=0.01, memory_before_backward_bytes=length,
    )  # fmt: skip


def make_tables(ms: dict = MS) -> dict[str, pd.DataFrame]:
    """The merged tables of runs that measured these times."""
    cells, runs = [], []
    for attention in dict.fromkeys(attention for attention, _ in ms):
        keys = {"run": attention, "model": "attention", "precision": "bf16", "batch_size": 8, "compile": "off"}
        keys["attention"] = attention
        key = {"spec": {"head_dim": 64}}
        made = [make_cell(attention, length, value) for (name, length), value in ms.items() if name == attention]
        rows = list_cells(Attention(status="complete", key=key, cells=made))
        cells += [keys | row for row in rows]
        runs.append(keys | {"device": "cuda", "device_name": "NVIDIA H200", "attention_status": "complete"})
    return {"attention_cells": make_table("attention_cells", cells), "runs": make_table("runs", runs)}


@pytest.fixture
def tables() -> dict[str, pd.DataFrame]:
    tables = make_tables()
    tables["attention_sweep"] = attention_sweep.compare_cells(tables["attention_cells"])
    return tables


def test_variants_are_compared_with_eager_attention_of_the_same_sizes(tables):
    table = tables["attention_sweep"].set_index(["variant", "context_length"])
    assert table.loc[("flash", 4096), "speed_up"] == pytest.approx(16)
    assert pd.isna(table.loc[("flash", 16384), "speed_up"]) and pd.isna(table.loc[("eager", 16384), "both_ms"])
    assert set(table.index[table["is_wrong"]].get_level_values(0)) == {"mine:wrong"}
    assert table.index[table["is_typical"]].tolist() == [("flash", 1024)]  # of those with eager attention, the middle


def test_the_document_leads_with_the_middle_length_and_lists_what_does_not_count(tables):
    document = text.environment(tables).get_template("attention_sweep.md.j2").render()
    assert "In bf16, flash attention is 4.00 times as fast as eager attention: 0.500 instead of 2.00 ms" in document
    assert "Out of memory: eager in bf16 from context 16384" in document
    assert "Wrong results, so that their times do not count: mine:wrong in bf16 (errors of up to 1.2" in document
    assert "in bf16 flash" in document.split("What to do")[1].splitlines()[0]
    assert "| 64          | 16384     |           OOM |   2.25 + 6.75 |" in document
    tables["attention_sweep"]["memory_before_backward_bytes"] = float("nan")  # as on a CPU
    assert "Memory in use before" not in text.environment(tables).get_template("attention_sweep.md.j2").render()


def test_without_any_measured_cell_the_document_says_so_and_the_figure_too(tables):
    empty = make_tables({("eager", 256): None})
    empty["attention_sweep"] = attention_sweep.compare_cells(empty["attention_cells"])
    document = text.environment(empty).get_template("attention_sweep.md.j2").render()
    assert "Not answered: no pass of attention was measured to its end: eager out of memory" in document
    for made, drawn in ((empty, "No pass was measured"), (tables, "times as fast as eager attention at")):
        assert drawn in str(attention_sweep.draw(made["attention_sweep"], made["runs"]).to_dict()).replace("\xa0", " ")
