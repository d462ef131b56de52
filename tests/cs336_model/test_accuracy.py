"""Every variant that runs on a CPU against an eager fp64 run of the same weights and tokens."""

import json

import pytest
import torch

from cs336_model.program import accuracy as module
from cs336_model.program.accuracy import NOT_OURS, NOT_WANTED, TOO_LARGE, accuracy, distance
from cs336_model.program.process_cost import Progress
from cs336_model.program.spec import read_spec
from cs336_model.program.steps import PhaseClock, make_subject, run_steps
from cs336_model.program.variants.effects import process_settings
from profile_grid.merging.accuracy import explained_error
from tests.cs336_model.specs import changed

CPU = torch.device("cpu")
ERRORS = ("loss_error", "logits_error", "gradient_norm_error")
VARIANTS = [
    {}, {"precision": "tf32"}, {"precision": "bf16"}, {"precision": "bf16-weights"}, {"attention": "math"},
    {"attention": "flash"}, {"checkpoint": 1}, {"precision": "bf16", "attention": "flash", "checkpoint": 2},
    {"mode": "forward", "precision": "bf16"}, {"mode": "train_step", "precision": "bf16"},
]  # fmt: skip


def errors_of(values: dict, steps_before: int = 0, change=lambda subject: None, **changes) -> dict:
    spec = read_spec(json.dumps(changed(values, **{"mode": "forward_backward", **changes})))
    with process_settings(spec):
        subject = make_subject(spec, CPU)
        run_steps(subject, steps_before, PhaseClock(CPU, "measure", Progress()))
        change(subject)
        return accuracy(subject)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_a_variant_computes_the_same_function_as_far_as_its_precision_goes(spec_values, changes):
    found = errors_of(spec_values, **changes)
    assert found["reason"] is None
    expected = ERRORS[:2] if changes.get("mode") == "forward" else ERRORS
    assert [name for name in ERRORS if found[name] is not None] == list(expected)
    assert 0 < max(found[name] for name in expected) < explained_error(changes.get("precision", "fp32"))


def test_lower_precision_is_further_off(spec_values):
    fp32, bf16 = errors_of(spec_values), errors_of(spec_values, precision="bf16")
    assert bf16["logits_error"] > 1000 * fp32["logits_error"]


def test_the_weights_are_those_of_the_seed_whatever_the_steps_before_made_of_them(spec_values):
    before, after = (errors_of(spec_values, steps, mode="train_step", precision="bf16") for steps in (0, 3))
    assert after == pytest.approx(before)


def test_another_function_is_off_by_more_than_any_precision_explains(spec_values):
    def without_mask(subject) -> None:
        for block in subject.model.blocks:
            attend = block.attention.attend
            block.attention.attend = lambda q, k, v, future, attend=attend: attend(q, k, v, torch.zeros_like(future))

    found = errors_of(spec_values, change=without_mask)
    assert found["logits_error"] > explained_error("bf16")


def test_an_fp64_run_that_does_not_fit_is_a_reason_and_no_error(spec_values, monkeypatch):
    def does_not_fit(spec, device):
        raise torch.OutOfMemoryError("Tried to allocate 80 GiB")

    monkeypatch.setattr(module, "build_model", does_not_fit)
    assert errors_of(spec_values) == {"reason": TOO_LARGE} | dict.fromkeys(ERRORS)


def test_a_model_of_somebody_else_is_not_computed_in_fp64(run_benchmark, their_module):
    result = run_benchmark(constructor="their_module:BasicsTransformerLM")
    assert result["accuracy"] == {"reason": NOT_OURS} | dict.fromkeys(ERRORS)


def test_only_the_process_without_a_profiler_asks(run_benchmark, tmp_path):
    assert run_benchmark()["accuracy"]["logits_error"] < 1e-5
    captured = run_benchmark("--profiler", "torch", "--capture", str(tmp_path / "capture.sqlite"))
    assert captured["accuracy"] is None


def test_who_does_not_want_the_comparison_is_told_so_and_has_the_times(run_benchmark):
    result = run_benchmark("--accuracy", "no")
    assert result["accuracy"] == {"reason": NOT_WANTED} | dict.fromkeys(ERRORS)
    assert len(result["step_seconds"]) == result["spec"]["measured_steps"]


def test_logits_are_off_by_their_distance_in_the_euclidean_norm():
    assert distance(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 0.0])) == 5.0
