"""The page of a study that lies beside the example."""

from docs import pages
from docs.examples import STUDIES
from tests.profile_grid.drawn_text import PIXEL


def test_the_page_of_a_study_has_its_question_and_its_runs_and_no_timeline(monkeypatch):
    monkeypatch.setattr(pages, "drawn", lambda *_: PIXEL)
    (first_step,) = [example for example in STUDIES if example.folder.name == "first-step"]
    text = pages.pages_of_studies()[first_step.folder / "report.html"]()
    assert "How many warm-up steps are enough?" in text
    assert "small_ctx512_train_step" in text
    assert "Timeline of one step" not in text
