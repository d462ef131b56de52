"""The table of relative errors, and the note on a run that its precision does not explain."""

from types import SimpleNamespace

import pytest

from profile_grid.results.results import Accuracy
from profile_grid.stages.timing.tables import accuracy_notes, accuracy_table, explained_error
from tests.profile_grid.made_up import Made


def run(accuracy: Accuracy | None, **changes):
    made = Made(**changes)
    timing = SimpleNamespace(program=accuracy and SimpleNamespace(accuracy=accuracy))
    return SimpleNamespace(leading=made.leading, results={"timing": timing})


def test_a_row_says_the_errors_what_explains_them_and_whether_they_are_within_that():
    near, far = Accuracy(None, 1e-5, 5e-3, 1e-3), Accuracy(None, 1e-5, 0.9, 1e-3)
    table = accuracy_table([run(near, precision="bf16"), run(far, precision="bf16"), run(near)])
    assert table["within_precision"].tolist() == [True, False, False]
    assert table["explained_error"].tolist() == pytest.approx([8 / 256 + 128 / 2**24] * 2 + [136 / 2**24])


def test_a_run_without_an_error_has_its_reason_and_no_verdict():
    table = accuracy_table([run(Accuracy("too large", None, None, None)), run(None)])
    assert table["reason"].tolist() == ["too large"]
    assert table[["logits_error", "within_precision"]].isna().all(axis=None)


def test_a_run_that_is_further_off_than_its_precision_explains_carries_a_note():
    (note,) = accuracy_notes(run(Accuracy(None, 1e-5, 0.9, 1e-3), precision="bf16"))
    assert note == "logits off by 9.0e-01 of fp64, and bf16 explains 3.1e-02: this may be another function"
    assert accuracy_notes(run(Accuracy(None, 1e-5, 5e-3, None), precision="bf16")) == []
    assert accuracy_notes(run(None)) == []


def test_a_lower_precision_explains_more():
    explained = [explained_error(name) for name in ("fp32", "tf32", "bf16")]
    assert explained == sorted(explained) and explained_error("bf16-weights") == explained[-1]
