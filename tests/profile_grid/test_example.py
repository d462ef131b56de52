"""The example on an H200, made from its tables again: a change of any number or sentence shows here as a diff."""

import json
from pathlib import Path

import pandas as pd
import pytest

from docs import overview, pages
from docs.examples import EXAMPLES, MAIN_STUDY, STUDIES, figure_images, write_committed
from profile_grid.documents.dictionary import dictionary
from profile_grid.documents.documents import ALL_ANSWERS, document_names, documents, section
from profile_grid.figures.panels import all_figures
from profile_grid.figures.paper import drawn, on_paper
from profile_grid.page.tables import tables_with
from profile_grid.study.catalogue import MERGED_NAMES, QUESTIONS, questions_asked
from profile_grid.study.workloads import MODEL_STEPS
from profile_grid.tables.measured import by_machine
from profile_grid.tables.on_disk import declared_tables
from tests.profile_grid.drawn_text import PIXEL

EXAMPLE = Path(__file__).parents[2] / "docs" / "example-h200"
PROVENANCE = EXAMPLE / "tables" / "provenance.json"

RUNS = MAIN_STUDY.merged()["runs"]
DOCUMENTS = [*document_names(RUNS), ALL_ANSWERS]
OF_MODELS = [question for question in QUESTIONS if question.workload is MODEL_STEPS]
LISTED = pd.read_csv(overview.SENTENCES, keep_default_na=False)
BY_QUESTION = [(example, question) for example in EXAMPLES for question in example.questions]
BY_QUESTION += [(MAIN_STUDY, question) for question in LISTED.query("study == 'example-h200'")["question"].unique()]
UNANSWERED = {(MAIN_STUDY.folder.name, "time_lost")}
FIGURES = [name for question in questions_asked(RUNS.to_dict("records")) for name in question.figures]


@pytest.fixture(scope="module")
def tables():
    return MAIN_STUDY.tables()


def require_same(name, table, folder, scratch):
    """Fails if the table is not the one that is kept. A table without rows is not kept."""
    declared_tables()[name].check(table)
    made, kept = scratch / f"{name}.parquet", folder / f"{name}.parquet"
    write_committed(made, table)
    assert made.exists() == kept.exists()
    if kept.exists():
        pd.testing.assert_frame_equal(pd.read_parquet(made), pd.read_parquet(kept), check_exact=True)


@pytest.mark.parametrize("name", MAIN_STUDY.summaries)
def test_every_summary_table_has_the_same_values(tables, name, tmp_path):
    require_same(name, tables[name], EXAMPLE / "tables", tmp_path)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_document_is_the_same_byte_for_byte(tables, name):
    made = documents(tables, tables["runs"], json.loads(PROVENANCE.read_text()), [name], MAIN_STUDY.links())
    assert made[name] == (EXAMPLE / "answers" / f"{name}.md").read_text()


@pytest.mark.parametrize("question", OF_MODELS, ids=lambda question: question.name)
def test_a_question_reads_its_own_tables_and_the_merged_ones_alone(tables, question):
    own = {name: tables[name] for name in question.tables}
    read = {table for name in question.figures for table in all_figures()[name].tables}
    read |= {shown.source for shown in tables_with(question)}
    assert read <= {*MERGED_NAMES, *own}
    if question.name in DOCUMENTS:
        provenance = json.loads(PROVENANCE.read_text())
        made = documents(own, tables["runs"], provenance, [question.name], MAIN_STUDY.links())[question.name]
        whole = (EXAMPLE / "answers" / f"{question.name}.md").read_text()
        assert ("Not answered" in made) == ("Not answered" in whole)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_the_same_byte_for_byte(tables, name):
    figure = all_figures()[name]
    made = drawn(on_paper(figure, tables), ".svg")
    assert made == (EXAMPLE / "figures" / f"{name}.svg").read_bytes()


def test_the_data_dictionary_is_the_same_and_describes_every_column(tables):
    for name in (*MAIN_STUDY.merged_names, *MAIN_STUDY.summaries):
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
    tables = example.tables()
    runs = tables["runs"]
    for name in example.merged_names:
        declared_tables()[name].check(tables[name])
    for name in example.summaries:
        require_same(name, tables[name], example.folder / "tables", tmp_path)
    made = documents(tables, runs, example.provenance(), example.committed_documents(runs), example.links())
    assert made == {name: (example.folder / "answers" / f"{name}.md").read_text() for name in made}
    kept = {path.stem: path.read_bytes() for path in (example.folder / "figures").glob("*.svg")}
    assert dict(figure_images(example)) == kept


def test_the_overview_the_list_and_the_agreement_of_studies_are_made_of_the_tables():
    assert overview.README.read_text(encoding="utf-8") == overview.overview()
    assert overview.SENTENCES.read_text(encoding="utf-8") == overview.sentences()
    assert overview.AGREEMENT.read_text(encoding="utf-8") == overview.agreement().to_csv(index=False)


def test_studies_are_apart_as_far_as_their_tables_say():
    table = overview.agreement()
    row = table.query("models == 'large' and context_length == 512 and mode == 'forward' and precision == 'bf16'")
    tables = [example.tables() for example in EXAMPLES]
    times = [kept["timings"] for kept in tables if "timings" in kept]
    own = pd.concat(times).query(
        "phase == 'step' and run == 'large_ctx512_forward_bf16' and attention == 'eager' and compile == 'off'"
    )["mean_ms"]
    assert len(row) == 1 and row["studies"].iloc[0] == len(own)
    assert row["ratio"].iloc[0] == pytest.approx(own.max() / own.min(), abs=1e-4)


@pytest.mark.parametrize(("example", "question"), BY_QUESTION, ids=lambda value: getattr(value, "folder", EXAMPLE).name)
def test_a_change_of_a_table_changes_the_answer(example, question):
    tables = example.tables()
    runs = tables["runs"]
    names = next(one.tables for one in QUESTIONS if one.name == question)
    machine = by_machine(runs)[0]
    before, after = ({name: change(tables[name]) for name in names} for change in (as_it_is, half_as_much_again))
    said = [section(*machine, runs, changed, [question]).sentences[question][0] for changed in (before, after)]
    assert (said[0] == said[1]) == ((example.folder.name, question) in UNANSWERED)
    listed = LISTED.query("study == @example.folder.name and question == @question")["sentence"].iloc[0]
    assert listed == (example.links()[question] if (example.folder.name, question) in UNANSWERED else said[0])


def as_it_is(table: pd.DataFrame) -> pd.DataFrame:
    return table


def half_as_much_again(table: pd.DataFrame) -> pd.DataFrame:
    """The table with every measured number half as large again."""
    floats = [name for name in table.columns if pd.api.types.is_numeric_dtype(table[name]) and name not in KEPT_AS]
    changed = {name: table[name].astype("float64") * 1.5 for name in floats if table[name].dtype != bool}
    return table.assign(**changed)


KEPT_AS = {
    "context_length",
    "batch_size",
    "checkpoint",
    "gpus",
    "rank",
    "head_dim",
    "layers",
    "instances_per_pass",
    "launches",
}


@pytest.mark.parametrize(
    ("study", "heading"),
    [("first-step", "How many warm-up steps are enough?"), ("block", "Where does memory go, and what fits?")],
)
def test_the_page_of_a_study_has_its_question_and_its_runs_and_no_timeline(study, heading, monkeypatch):
    monkeypatch.setattr(pages, "drawn", lambda *_: PIXEL)
    (example,) = [example for example in STUDIES if example.folder.name == study]
    text = pages.pages_of_studies()[example.folder / "report.html"]()
    assert heading in text
    assert "small_ctx512_train_step" in text
    assert "Timeline of one measured step" not in text
