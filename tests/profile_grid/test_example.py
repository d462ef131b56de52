"""The example on an H200, made anew from its merged tables: a change of any figure or sentence shows here as a diff."""

import json
from collections import ChainMap
from pathlib import Path

import pytest

from docs.examples import PAGE, RECORDING_PAGE, STUDIES, SWEEP_EXAMPLE, WHOLE, made_of_sweep, page_of, page_of_recording
from profile_grid.documents.dictionary import dictionary
from profile_grid.documents.documents import ALL, asked_of, documents
from profile_grid.documents.summaries import summary_tables
from profile_grid.figures.paper import drawn, on_paper
from profile_grid.figures.registry import all_figures
from profile_grid.files import write_table
from profile_grid.merging.verify import file_difference
from profile_grid.page.tables import tables_with
from profile_grid.study.catalogue import MERGED, QUESTIONS, SUMMARIES, TABLES, questions_asked
from profile_grid.tables.declared import declared_tables
from profile_grid.tables.on_disk import TablesOnDisk

EXAMPLE = Path(__file__).parents[2] / "docs" / "example-h200"
PROVENANCE = EXAMPLE / "tables" / "provenance.json"

RUNS = TablesOnDisk(EXAMPLE / "tables")["runs"]
DOCUMENTS = [*asked_of(RUNS), ALL]
FIGURES = [name for question in questions_asked(RUNS.to_dict("records")) for name in question.figures]


@pytest.fixture(scope="module")
def tables():
    return TablesOnDisk(EXAMPLE / "tables")


@pytest.fixture(scope="module")
def summaries(tables):
    return summary_tables(tables)


@pytest.mark.parametrize("name", SUMMARIES)
def test_every_summary_table_is_the_same_byte_for_byte(summaries, name, tmp_path):
    write_table(tmp_path / name, summaries[name])
    for suffix in (".csv", ".parquet"):
        file = f"{name}{suffix}"
        assert file_difference(tmp_path / file, EXAMPLE / "tables" / file) is None


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_document_is_the_same_byte_for_byte(summaries, tables, name):
    made = documents(summaries, tables["runs"], json.loads(PROVENANCE.read_text()), [name])
    assert made[name] == (EXAMPLE / "answers" / f"{name}.md").read_text()


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_a_question_reads_its_own_tables_and_the_merged_ones_alone(summaries, tables, question):
    own = {name: summaries[name] for name in question.tables}
    read = {table for name in question.figures for table in all_figures()[name].tables}
    read |= {shown.source for shown in tables_with(question)}
    assert read <= {*MERGED, *own}
    if question.name in DOCUMENTS:
        made = documents(own, tables["runs"], json.loads(PROVENANCE.read_text()), [question.name])[question.name]
        whole = (EXAMPLE / "answers" / f"{question.name}.md").read_text()
        assert ("Not answered" in made) == ("Not answered" in whole)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_the_same_byte_for_byte(tables, name):
    figure = all_figures()[name]
    made = drawn(on_paper(figure, {table: tables[table] for table in figure.tables}), ".svg")
    assert made == (EXAMPLE / "figures" / f"{name}.svg").read_bytes()


def test_the_data_dictionary_is_the_same_and_describes_every_column(tables):
    for name in TABLES:
        declared_tables()[name].check(tables[name])
    assert dictionary() == (EXAMPLE / "tables" / "README.md").read_text()


def test_the_pages_of_the_study_and_of_a_recording_are_the_same_byte_for_byte():
    assert page_of(WHOLE) == PAGE.read_text()
    assert page_of_recording() == RECORDING_PAGE.read_text()


@pytest.mark.parametrize("example", STUDIES, ids=lambda example: example.folder.name)
def test_a_study_beside_it_is_the_same_byte_for_byte(example, tmp_path):
    tables = example.merged()
    for name in MERGED:
        declared_tables()[name].check(tables[name])
    summaries = summary_tables(tables)
    for name in example.summaries:
        write_table(tmp_path / name, summaries[name])
        assert (tmp_path / f"{name}.csv").read_text() == (example.folder / "tables" / f"{name}.csv").read_text()
    made = documents(summaries, tables["runs"], example.provenance(), example.documents(tables["runs"]))
    assert made == {name: (example.folder / "answers" / f"{name}.md").read_text() for name in made}
    for name in example.figures(tables["runs"]):
        figure = all_figures()[name]
        made = drawn(on_paper(figure, ChainMap(summaries, tables)), ".svg")
        assert made == (example.folder / "figures" / f"{name}.svg").read_bytes()


def test_the_attention_sweep_beside_it_is_the_same_byte_for_byte():
    for path, content in made_of_sweep(SWEEP_EXAMPLE).items():
        assert path.suffix == ".png" or path.read_bytes() == content, path
