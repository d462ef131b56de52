"""The definitions of a document: those of what it shows."""

from importlib import import_module

import pytest

from profile_grid.documents.definitions import needed_for
from profile_grid.documents.documents import outcomes
from profile_grid.study.catalogue import QUESTIONS
from tests.profile_grid.made_up_answers import forward
from tests.profile_grid.test_answers import rendered

TEXT = "Definitions:\n\n- [if ring|bus] on a ring: bytes.\n- always: shown.\n"


def test_a_definition_with_a_condition_is_shown_only_where_the_answers_match_it():
    assert needed_for(TEXT, "the bus is slow") == "Definitions:\n\n- on a ring: bytes.\n- always: shown."
    assert needed_for(TEXT, "nothing") == "Definitions:\n\n- always: shown."
    assert needed_for(TEXT.replace("- always: shown.\n", ""), "nothing") == ""


@pytest.mark.parametrize("question", [question.name for question in QUESTIONS if question.has_document])
def test_every_condition_of_a_question_is_one_that_is_understood(question):
    folder = import_module(f"profile_grid.questions.{question}").__path__[0]
    with open(f"{folder}/definitions.md.j2", encoding="utf-8") as file:
        assert "[if " not in needed_for(file.read(), "")


def test_a_document_defines_only_what_it_shows():
    text = rendered(forward())["b_top_kernels"]
    assert "- gemm: a matrix multiply" in text
    assert "operator time" not in text and '"+4"' not in text and "[if" not in text


def test_stages_that_ended_differently_are_named_with_how_they_ended():
    counts = {"complete / complete": 3, "complete / not_asked": 1, "out_of_memory / incomplete": 1}
    assert outcomes(counts, "timing / memory") == (
        "timing: 4 complete, 1 out of memory; memory: 3 complete, 1 not requested, 1 incomplete"
    )


def test_the_provenance_has_the_sizes_of_every_model_that_is_known_by_its_sizes():
    runs = forward()
    text = rendered(runs)["b_top_kernels"]
    assert "- models: small (12 layers, d_model 768, d_ff 3072, 12 heads)\n" in text
