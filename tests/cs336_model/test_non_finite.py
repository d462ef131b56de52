"""Numbers that stop being finite are traced to their step, range and operator."""

import json

import pytest
import torch

from cs336_model import ranges
from cs336_model.model import transformer
from cs336_model.model.optimizer import AdamW
from cs336_model.program.non_finite import where_not_finite
from cs336_model.program.spec import read_spec
from tests.cs336_model.specs import changed

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _ranges_as_before():
    yield
    ranges.emit_ranges("none")


def where(values: dict, steps: int, **changes) -> str:
    return where_not_finite(read_spec(json.dumps(changed(values, **changes))), CPU, steps)


def test_the_range_of_the_first_such_number_is_named_not_those_that_it_spreads_to(spec_values, monkeypatch):
    real = transformer.softmax
    monkeypatch.setattr(transformer, "softmax", lambda scores: real(scores) / 0)
    found = where(spec_values, 1)
    place = "block > attention > scaled dot product attention > computing softmax"
    assert found == f"the first number that is not finite appears in step 0 > forward > {place}, by aten::div.Tensor"


def test_the_scores_behind_a_mask_are_no_such_numbers(spec_values):
    assert (
        where(spec_values, 2) == "when the steps are repeated without compiling, no operator returns NaN or +infinity"
    )


def test_a_later_step_and_the_optimizer_are_found_too(spec_values, monkeypatch):
    real = AdamW.step

    def broken_at_the_second(self) -> None:
        real(self)
        if self.steps == 2:
            self.parameters[0].data.div_(0.0)

    monkeypatch.setattr(AdamW, "step", broken_at_the_second)
    assert where(spec_values, 3).endswith("appears in step 1 > optimizer, by aten::div_.Tensor")


def test_a_compiled_run_is_looked_at_without_compiling(spec_values, monkeypatch):
    monkeypatch.setattr(transformer, "silu", lambda gate: gate * float("inf"))
    assert "step 0 > forward > block > feed-forward > activation, by aten::mul" in where(spec_values, 1, compile="on")


def test_the_program_ends_with_step_loss_range_and_no_result(spec_values, monkeypatch, run_benchmark):
    monkeypatch.setattr(transformer, "silu", lambda gate: gate * float("inf"))
    with pytest.raises(
        FloatingPointError, match=r"loss of step 0 .* is nan: .* appears in step 0 > forward > block > feed-"
    ):
        run_benchmark()


def test_where_there_is_no_memory_to_look_that_is_said(spec_values, monkeypatch):
    def none_left(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("cs336_model.program.non_finite.make_subject", none_left)
    assert where(spec_values, 1) == "where is unknown: there is not enough memory to search"
