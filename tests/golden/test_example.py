"""The documents (a) to (e) of the example on an H200: their numbers follow from the frozen tables of its runs."""

import csv
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from workflow.scripts import answers, summaries
from workflow.text import TEMPLATES

GOLDEN = Path(__file__).parent / "example"
DOCUMENTS = ["a_forward_time", "b_top_kernels", "c_other_kernels", "d_training_vs_inference", "e_attention"]
LABELS = {"model", "context", "part"}  # headings of the columns that name a row
COLUMNS = ["document", "table", "introduction", "row", "column", "text"]
RENAMED: dict[str, str] = {}  # frozen heading of a column: its heading now
NUMBER = re.compile(r"[−<]? ?\d+(?:[.,]\d+)*")


def make_answers(tables: Path, folder: Path) -> None:
    """Writes the documents, made from the merged tables in a folder, into another: all that is known of how here."""
    names = "forward_time top_kernels forward_parts class_shares training_parts"
    names += " attention attention_backward"
    merged = [str(tables / f"{name}.parquet") for name in ("runs", "timings", "phases", "kernels", "ranges")]
    made = [str(folder / "tables" / f"{name}.parquet") for name in names.split()]
    summaries.main(merged, made)
    answers.main([*merged, *made], [str(TEMPLATES / f"{name}.md.j2") for name in DOCUMENTS], str(folder))


def cells_of(document: str, text: str) -> Iterator[list[str]]:
    """The first sentence, as a cell of table 0, and the cells of the tables of a document in Markdown."""
    paragraphs = [part.strip() for part in text.split("\n\n") if part.strip()]
    yield [document, "0", "", "", "first sentence", paragraphs[1]]
    tables = 0
    for introduction, paragraph in pairwise(paragraphs):
        if paragraph.startswith("|"):
            tables += 1
            heading, _, *rows = [_row(line) for line in paragraph.splitlines()]
            labels = next(index for index, name in enumerate(heading) if name not in LABELS)
            for row in rows:
                label = " · ".join(row[:labels])
                for column, cell in zip(heading[labels:], row[labels:], strict=True):
                    yield [document, str(tables), introduction, label, column, cell]


def _row(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def numbers_of(text: str) -> list[str]:
    return [number.replace(" ", "") for number in NUMBER.findall(text)]


@pytest.fixture(scope="module")
def frozen() -> list[dict[str, str]]:
    with (GOLDEN / "cells.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[tuple[str, ...], str]:
    """By document, table, row and column, the text of a cell."""
    folder = tmp_path_factory.mktemp("answers") / "made"
    make_answers(GOLDEN / "tables", folder)
    cells = [cell for name in DOCUMENTS for cell in cells_of(name, (folder / f"{name}.md").read_text())]
    return {(document, table, row, column): text for document, table, _, row, column, text in cells}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_number_of_a_document_is_the_frozen_one(document, frozen, made):
    wrong = []
    for cell in frozen:
        if cell["document"] == document:
            key = (document, cell["table"], cell["row"], RENAMED.get(cell["column"], cell["column"]))
            if numbers_of(cell["text"]) != numbers_of(made.get(key, "no such cell")) or key not in made:
                wrong.append(f"{key}: {cell['text']} -> {made.get(key, 'no such cell')}")
    assert wrong[:10] == []


def test_no_table_has_rows_that_are_not_frozen(frozen, made):
    assert {key[:3] for key in made} == {(cell["document"], cell["table"], cell["row"]) for cell in frozen}
    assert {cell["document"] for cell in frozen} == set(DOCUMENTS)
