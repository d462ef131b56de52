from docs import examples

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000a49444154789c6300010000050001"
    "0d0a2db40000000049454e44ae426082"
)


def test_the_page_of_a_study_has_its_question_and_its_runs_and_no_timeline(monkeypatch):
    monkeypatch.setattr(examples, "drawn", lambda *_: PIXEL)
    (first_step,) = [one for one in examples.STUDIES if one.folder.name == "first-step"]
    text = examples.page_of(first_step)
    assert "How many warm-up steps are enough?" in text
    assert "small_ctx512_train_step" in text
    assert "Timeline of one step" not in text
