"""Every variant that runs on a CPU against an eager fp64 run of the same weights and tokens."""

import json

import pytest
import torch

from cs336_model.program import accuracy as module
from cs336_model.program import steps
from cs336_model.program.accuracy import NOT_OURS, SWITCHED_OFF, TOO_LARGE, Comparison, distance
from cs336_model.program.process import Progress
from cs336_model.program.spec import read_spec
from cs336_model.program.steps import PhaseClock, make_subject, run_steps
from cs336_model.program.variants.effects import process_settings
from profile_grid.stages.timing.tables import explained_error
from tests.cs336_model.specs import changed

CPU = torch.device("cpu")
ERRORS = ("loss_error", "logits_error", "gradient_norm_error")
VARIANTS = [
    {}, {"precision": "tf32"}, {"precision": "bf16"}, {"precision": "bf16-weights"}, {"attention": "math"},
    {"attention": "flash"}, {"checkpoint": "1"}, {"precision": "bf16", "attention": "flash", "checkpoint": "2"},
    {"mode": "forward", "precision": "bf16"}, {"mode": "train_step", "precision": "bf16"},
]  # fmt: skip


def errors_of(values: dict, steps: int = 1, change=lambda subject: None, **changes) -> dict:
    spec = read_spec(json.dumps(changed(values, **{"mode": "forward_backward", **changes})))
    with process_settings(spec):
        subject = make_subject(spec, CPU)
        change(subject)
        comparison = Comparison(subject)
        run_steps(subject, steps, PhaseClock(CPU, "measure", Progress()))
        return comparison.errors(subject)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_a_variant_computes_the_same_function_as_far_as_its_precision_goes(spec_values, changes):
    errors = errors_of(spec_values, **changes)
    assert errors["reason"] is None
    expected = ERRORS[:2] if changes.get("mode") == "forward" else ERRORS
    assert [name for name in ERRORS if errors[name] is not None] == list(expected)
    assert 0 < max(errors[name] for name in expected) < explained_error(changes.get("precision", "fp32"))


def test_lower_precision_is_further_off(spec_values):
    fp32, bf16 = errors_of(spec_values), errors_of(spec_values, precision="bf16")
    assert bf16["logits_error"] > 1000 * fp32["logits_error"]


@pytest.mark.parametrize("mode", ["forward", "forward_backward", "train_step"])
def test_the_first_step_is_compared_whatever_later_ones_give(spec_values, mode):
    first_step, four_steps = (errors_of(spec_values, steps, mode=mode, precision="bf16") for steps in (1, 4))
    assert four_steps == pytest.approx(first_step)


@pytest.mark.parametrize("mode", ["forward", "forward_backward", "train_step"])
def test_what_is_kept_of_the_first_step_is_on_the_host_and_takes_no_time_of_it(spec_values, mode, monkeypatch):
    spec = read_spec(json.dumps(changed(spec_values, mode=mode)))
    subject = make_subject(spec, CPU)
    comparison, kept = Comparison(subject), []
    keep = subject.after_first_step
    now = [0.0]  # a clock that stands still but while the outputs are kept
    monkeypatch.setattr(steps, "default_timer", lambda: now[0])
    subject.after_first_step = lambda *told: (now.append(now.pop() + 0.5), kept.append(told[1]), keep(*told))
    seconds = run_steps(subject, 3, PhaseClock(CPU, "measure", Progress()))
    assert (len(kept), seconds, now) == (1, [0.0] * 3, [0.5]) and subject.after_first_step is None
    assert comparison._outputs.logits.device == CPU and not comparison._outputs.logits.requires_grad


def test_the_norm_of_all_gradients_is_that_of_their_parts_together():
    parameters = [torch.nn.Parameter(torch.empty(shape)) for shape in ((5, 6), (3,), (2, 2, 2), (4,))]
    for parameter in parameters[:3]:
        parameter.grad = torch.randn(parameter.shape).transpose(0, -1).contiguous().transpose(0, -1)
    expected_norm = torch.cat([parameter.grad.double().reshape(-1) for parameter in parameters[:3]]).norm()
    assert float(module.norm_of_gradients(parameters, 7)) == pytest.approx(float(expected_norm), rel=1e-14)


def test_another_function_is_off_by_more_than_any_precision_explains(spec_values):
    def without_mask(subject) -> None:
        for block in subject.model.blocks:
            attend = block.attention.attend
            block.attention.attend = lambda q, k, v, future, attend=attend: attend(q, k, v, torch.zeros_like(future))

    errors = errors_of(spec_values, change=without_mask)
    assert errors["logits_error"] > explained_error("bf16")


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
    assert result["accuracy"] == {"reason": SWITCHED_OFF} | dict.fromkeys(ERRORS)
    assert len(result["step_seconds"]) == result["spec"]["measured_steps"]


@pytest.mark.parametrize(
    ("peak", "now", "most"), [(2**40, 0, module.MAX_ELEMENTS), (2**25, 2**24, 2**20), (5, 5, 2**14)]
)
def test_gradients_are_made_anew_in_pieces_that_take_no_more_than_the_step_took(monkeypatch, peak, now, most):
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: peak)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: now)
    assert module.free_elements(torch.device("cuda", 0)) == most


def test_logits_are_off_by_their_distance_in_the_euclidean_norm():
    assert distance(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 0.0])) == 5.0
