"""The page of a study that lies beside the example."""

import pytest

from docs import pages
from docs.examples import STUDIES
from tests.profile_grid.drawn_text import PIXEL


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
