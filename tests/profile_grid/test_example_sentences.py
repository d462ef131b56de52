"""The sentences of the example: short leads, few bullets, each listed with its rule, and made of its tables."""

import json
import re

import pandas as pd
import pytest

from docs import overview
from docs.examples import EXAMPLES, H200, WHOLE
from kernel_tables.diagnosis.rules import CODES
from profile_grid.documents.documents import section
from profile_grid.study.catalogue import QUESTIONS
from profile_grid.tables.measured import by_machine
from profile_grid.tables.wording import FIELD, MOST_BULLETS, MOST_WORDS, RULES, words

HEADINGS = {question.heading: question.name for question in QUESTIONS}
DOCUMENTS = sorted(H200.glob("**/answers/*.md"))
LISTED = pd.read_csv(overview.SENTENCES, keep_default_na=False)
BY_QUESTION = [(example, question) for example in EXAMPLES for question in example.questions]
BY_QUESTION += [(WHOLE, question) for question in LISTED.query("study == 'example-h200'")["question"].unique()]
UNANSWERED = {(WHOLE.folder.name, "time_lost")}


def answers(path) -> dict[str, list[str]]:
    """The lead and the bullets of each question of a document."""
    parts = re.split(r"^##? (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = {heading: body.strip() for heading, body in zip(parts[1::2], parts[2::2], strict=True)}
    own = {heading: body.partition("\n\nMeasured on")[0] for heading, body in found.items() if heading in HEADINGS}
    return {heading: re.split(r"\n+- |\n\n(?=See also)", body) for heading, body in own.items()}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(H200)))
def test_every_answer_is_one_short_sentence_and_at_most_five_bullets(path):
    found = answers(path)
    assert found
    for heading, (lead, *bullets) in found.items():
        assert words(lead) <= MOST_WORDS, (heading, words(lead), lead)
        assert "\n" not in lead and lead.endswith("."), heading
        assert len([bullet for bullet in bullets if not bullet.startswith("See also")]) <= MOST_BULLETS, heading


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(H200)))
def test_a_missing_run_is_mentioned_once_and_no_sentence_is_about_a_code(path):
    text = path.read_text(encoding="utf-8")
    missing = re.findall(r"^- (.*?): out of memory.* requested,", text, re.MULTILINE)
    lists = text[text.find("Not measured\n") :] if missing else ""
    names = [name for joined in missing for name in joined.split("; ")]
    assert [name for name in names if len(re.findall(f"{re.escape(name)}[:;] ", lists)) != 1] == []
    said = "\n".join(sentence for sentences in answers(path).values() for sentence in sentences)
    assert [code for code in CODES if f"`{code}`" in said] == []


def test_every_sentence_of_the_documents_is_listed_with_its_rule():
    listed = {(row.study, HEADINGS_BY_NAME[row.question]): [] for row in LISTED.itertuples()}
    for row in LISTED.itertuples():
        listed[row.study, HEADINGS_BY_NAME[row.question]].append(row.sentence)
    for path in DOCUMENTS:
        for heading, sentences in answers(path).items():
            said = [sentence for sentence in sentences if not sentence.startswith("See also")]
            assert said == listed[path.parents[1].name, heading], (path, heading)
    assert set(LISTED["rule"]) <= set(RULES)
    assert all(isinstance(json.loads(numbers), dict) for numbers in LISTED["numbers"])


HEADINGS_BY_NAME = {name: heading for heading, name in HEADINGS.items()}


@pytest.mark.parametrize(("example", "question"), BY_QUESTION, ids=lambda value: getattr(value, "folder", H200).name)
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


def test_the_overview_the_list_and_the_agreement_of_studies_are_made_of_the_tables():
    assert overview.README.read_text(encoding="utf-8") == overview.overview()
    assert overview.SENTENCES.read_text(encoding="utf-8") == overview.sentences()
    assert overview.AGREEMENT.read_text(encoding="utf-8") == overview.agreement().to_csv(index=False)


def test_no_number_is_typed_in_the_overview():
    template = overview.TEMPLATE.read_text(encoding="utf-8")
    plain = re.sub(r"`[^`]*`", "", FIELD.sub("", re.sub(r"\{#.*?#\}|\{\{.*?\}\}|\{%.*?%\}", "", template, flags=re.S)))
    assert re.findall(r"\d", plain) == []


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
