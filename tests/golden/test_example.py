"""The documents (a) to (e) of the example on an H200: the numbers that are made from its tables are the frozen ones."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from workflow.grid import SUMMARIES
from workflow.scripts import answers, summaries

FROZEN = Path(__file__).parent / "example_cells.csv"
TABLES = Path(__file__).parents[2] / "docs/example-h200/tables"
DOCUMENTS = ["a_forward_time", "b_top_kernels", "c_other_kernels", "d_training_vs_inference", "e_attention"]
COLUMNS = ["document", "row", "column", "text"]
NUMBER = re.compile(r"[−<]? ?\d+(?:[.,]\d+)*")


def make_answers(tables: Path, folder: Path) -> None:
    """Writes the documents, made from the merged tables in a folder, into another: all that is known of how here."""
    merged = [str(tables / f"{name}.parquet") for name in ("runs", "timings", "phases", "kernels", "ranges")]
    made = [str(folder / "tables" / f"{name}.parquet") for name in SUMMARIES]
    summaries.main(merged, made)
    answers.main([*merged, *made], [f"{name}.md.j2" for name in DOCUMENTS], str(folder))


def cells_of(document: str, text: str) -> Iterator[list[str]]:
    """The first sentence, as the cell of no row, and the cells of the table of a document in Markdown."""
    yield [document, "", "first sentence", text.split("\n\n")[1]]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    for model, context, *cells in rows[2:]:
        for column, cell in zip(rows[0][2:], cells, strict=True):
            yield [document, f"{model} · {context}", column, cell]


def numbers_of(text: str) -> list[str]:
    return [number.replace(" ", "") for number in NUMBER.findall(text)]


@pytest.fixture(scope="module")
def frozen() -> list[dict[str, str]]:
    with FROZEN.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[tuple[str, ...], str]:
    """By document, row and column, the text of a cell."""
    folder = tmp_path_factory.mktemp("answers") / "made"
    make_answers(TABLES, folder)
    cells = [cell for name in DOCUMENTS for cell in cells_of(name, (folder / f"{name}.md").read_text())]
    return {tuple(where): text for *where, text in cells}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_number_of_a_document_is_the_frozen_one(document, frozen, made):
    texts = {(document, cell["row"], cell["column"]): cell["text"] for cell in frozen if cell["document"] == document}
    now = {key: made.get(key, "no such cell") for key in texts}
    wrong = [f"{key}: {text} -> {now[key]}" for key, text in texts.items() if numbers_of(text) != numbers_of(now[key])]
    assert texts and wrong[:10] == []


def test_no_table_has_rows_that_are_not_frozen(frozen, made):
    assert {key[:2] for key in made} == {(cell["document"], cell["row"]) for cell in frozen}
