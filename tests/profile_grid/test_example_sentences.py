"""The sentences of the example: short leads, few bullets, each listed with its rule, and made of its tables."""

import json
import re

import pandas as pd
import pytest

from docs import overview
from docs.examples import H200
from kernel_tables.diagnosis.rules import CODES
from profile_grid.study.catalogue import QUESTIONS
from profile_grid.tables.wording import FIELD, MAX_BULLETS, MAX_WORDS, RULES, word_count

HEADINGS = {question.heading: question.name for question in QUESTIONS}
DOCUMENTS = sorted(H200.glob("**/answers/*.md"))
LISTED = pd.read_csv(overview.SENTENCES, keep_default_na=False)


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
        assert word_count(lead) <= MAX_WORDS, (heading, word_count(lead), lead)
        assert "\n" not in lead and lead.endswith("."), heading
        assert len([bullet for bullet in bullets if not bullet.startswith("See also")]) <= MAX_BULLETS, heading


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(H200)))
def test_a_missing_run_is_mentioned_once_and_no_sentence_is_about_a_code(path):
    text = path.read_text(encoding="utf-8")
    missing = re.findall(r"^- (.*?): out of memory.* requested,", text, re.MULTILINE)
    lists = text[text.find("Not measured\n") :] if missing else ""
    names = [name for name in missing if not re.fullmatch(r"\d+ of \d+ runs", name)]
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


def test_no_number_is_typed_in_the_overview():
    template = overview.TEMPLATE.read_text(encoding="utf-8")
    plain = re.sub(r"`[^`]*`", "", FIELD.sub("", re.sub(r"\{#.*?#\}|\{\{.*?\}\}|\{%.*?%\}", "", template, flags=re.S)))
    assert re.findall(r"\d", plain) == []
