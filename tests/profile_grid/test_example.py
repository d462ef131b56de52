"""The example on an H200, made from its tables again: a change of any number or sentence shows here as a diff."""

import json
from collections import ChainMap
from pathlib import Path

import pytest

from docs import pages
from docs.examples import STUDIES, WHOLE, KeptTables, write_kept
from profile_grid.documents.dictionary import dictionary
from profile_grid.documents.documents import ALL, asked_of, documents
from profile_grid.documents.summaries import Summaries, summary_tables
from profile_grid.figures.panels import all_figures
from profile_grid.figures.paper import drawn, on_paper
from profile_grid.page.tables import tables_with
from profile_grid.study.catalogue import MERGED, QUESTIONS, questions_asked
from profile_grid.study.workloads import MODEL_STEPS
from profile_grid.tables.on_disk import declared_tables
from tests.profile_grid.drawn_text import PIXEL
from workflow.scripts.verify import file_difference

EXAMPLE = Path(__file__).parents[2] / "docs" / "example-h200"
PROVENANCE = EXAMPLE / "tables" / "provenance.json"

RUNS = KeptTables(EXAMPLE / "tables")["runs"]
DOCUMENTS = [*asked_of(RUNS), ALL]
OF_MODELS = [question for question in QUESTIONS if question.workload is MODEL_STEPS]
FIGURES = [name for question in questions_asked(RUNS.to_dict("records")) for name in question.figures]


@pytest.fixture(scope="module")
def tables():
    return KeptTables(EXAMPLE / "tables")


@pytest.fixture(scope="module")
def summaries(tables):
    return summary_tables(tables)


def table_difference(name, table, folder, scratch):
    """What differs from the table that is kept; None where nothing does, or where neither has rows."""
    declared_tables()[name].check(table)
    made, kept = scratch / f"{name}.parquet", folder / f"{name}.parquet"
    write_kept(made, table)
    return file_difference(made, kept) if made.exists() or kept.exists() else None


@pytest.mark.parametrize("name", WHOLE.summaries)
def test_every_summary_table_has_the_same_values(summaries, name, tmp_path):
    assert table_difference(name, summaries[name], EXAMPLE / "tables", tmp_path) is None


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_document_is_the_same_byte_for_byte(summaries, tables, name):
    made = documents(summaries, tables["runs"], json.loads(PROVENANCE.read_text()), [name], WHOLE.links())
    assert made[name] == (EXAMPLE / "answers" / f"{name}.md").read_text()


@pytest.mark.parametrize("question", OF_MODELS, ids=lambda question: question.name)
def test_a_question_reads_its_own_tables_and_the_merged_ones_alone(summaries, tables, question):
    own = {name: summaries[name] for name in question.tables}
    read = {table for name in question.figures for table in all_figures()[name].tables}
    read |= {shown.source for shown in tables_with(question)}
    assert read <= {*MERGED, *own}
    if question.name in DOCUMENTS:
        provenance = json.loads(PROVENANCE.read_text())
        made = documents(own, tables["runs"], provenance, [question.name], WHOLE.links())[question.name]
        whole = (EXAMPLE / "answers" / f"{question.name}.md").read_text()
        assert ("Not answered" in made) == ("Not answered" in whole)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_the_same_byte_for_byte(tables, name):
    figure = all_figures()[name]
    made = drawn(on_paper(figure, {table: tables[table] for table in figure.tables}), ".svg")
    assert made == (EXAMPLE / "figures" / f"{name}.svg").read_bytes()


def test_the_data_dictionary_is_the_same_and_describes_every_column(tables):
    for name in (*WHOLE.merged_names, *WHOLE.summaries):
        declared_tables()[name].check(tables[name])
    assert dictionary() == (EXAMPLE / "tables" / "README.md").read_text()


@pytest.mark.parametrize("path", pages.pages(), ids=lambda path: str(path.relative_to(EXAMPLE)))
def test_every_page_is_the_same_byte_for_byte(path, monkeypatch):
    monkeypatch.setattr(pages, "drawn", lambda *_: PIXEL)
    kept = json.loads(pages.DIGESTS.read_text())
    assert {*kept} == {str(page.relative_to(EXAMPLE)) for page in pages.pages()}
    differs = "to see the change: python -m docs.make before and after it; to accept it: python -m docs.pages"
    assert pages.digest(pages.pages()[path]()) == kept[str(path.relative_to(EXAMPLE))], differs


@pytest.mark.parametrize("example", STUDIES, ids=lambda example: example.folder.name)
def test_a_study_beside_it_is_the_same_byte_for_byte(example, tmp_path):
    tables = example.merged()
    for name in example.merged_names:
        declared_tables()[name].check(tables[name])
    summaries = Summaries(tables)
    for name in example.summaries:
        assert table_difference(name, summaries[name], example.folder / "tables", tmp_path) is None
    names, links = example.documents(tables["runs"]), example.links()
    made = documents(summaries, tables["runs"], example.provenance(), names, links)
    assert made == {name: (example.folder / "answers" / f"{name}.md").read_text() for name in made}
    for name in example.figures(tables["runs"]):
        figure = all_figures()[name]
        made = drawn(on_paper(figure, ChainMap(summaries, tables)), ".svg")
        assert made == (example.folder / "figures" / f"{name}.svg").read_bytes()
