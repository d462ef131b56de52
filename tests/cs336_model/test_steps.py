"""The loop: what is timed, what is kept, what stays on the device."""

import json

import pytest
import torch

from cs336_model.program import steps
from cs336_model.program.process import Progress
from cs336_model.program.spec import read_spec
from cs336_model.program.steps import PhaseClock, finite_losses, make_subject, run_steps
from tests.cs336_model.other_models import RaisingModel
from tests.cs336_model.specs import changed

CPU = torch.device("cpu")


def subject_of(values: dict, **changes) -> steps.Subject:
    return make_subject(read_spec(json.dumps(changed(values, **changes))), CPU)


def test_the_device_is_waited_for_once_per_step(monkeypatch, spec_values):
    subject, waits = subject_of(spec_values), []
    monkeypatch.setattr(steps, "synchronize", waits.append)
    assert len(run_steps(subject, 3, PhaseClock(CPU, "measure", Progress()))) == 3
    assert waits == [CPU] * 3


def test_phases_of_a_step_take_no_longer_than_the_step(spec_values):
    subject, clock = subject_of(spec_values), PhaseClock(CPU, "measure", Progress())
    step_seconds = run_steps(subject, 3, clock)
    phases = clock.seconds()
    assert {name: len(seconds) for name, seconds in phases.items()} == dict.fromkeys(phases, 3)
    for index, seconds in enumerate(step_seconds):
        assert 0 < sum(times[index] for times in phases.values()) <= seconds


def test_phases_on_a_gpu_are_the_milliseconds_of_events_as_seconds(monkeypatch):
    class FakeEvent:
        clock_ms = 0.0

        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            FakeEvent.clock_ms += 250.0
            self.at_ms = FakeEvent.clock_ms

        def elapsed_time(self, other: "FakeEvent") -> float:
            return other.at_ms - self.at_ms

    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    clock = PhaseClock(torch.device("cuda", 0), "measure", Progress())
    with clock.phase("forward"):
        pass
    assert clock.name == "cuda_event"
    assert clock.seconds() == {"forward": [0.25], "loss": [], "backward": [], "optimizer": []}


def test_gradients_do_not_add_up_over_steps(spec_values):
    subject = subject_of(spec_values, mode="forward_backward")
    run_steps(subject, 1, PhaseClock(CPU, "measure", Progress()))
    after_one = [parameter.grad.clone() for parameter in subject.model.parameters()]
    run_steps(subject, 2, PhaseClock(CPU, "measure", Progress()))
    for first, parameter in zip(after_one, subject.model.parameters(), strict=True):
        assert torch.equal(first, parameter.grad)


def test_training_lowers_the_loss_and_the_other_mode_repeats_it(spec_values):
    trained, repeated = subject_of(spec_values), subject_of(spec_values, mode="forward_backward")
    for subject in (trained, repeated):
        run_steps(subject, 4, PhaseClock(CPU, "measure", Progress()))
    falling, constant = finite_losses(trained), finite_losses(repeated)
    assert falling == sorted(falling, reverse=True) and falling[-1] < falling[0]
    assert len(set(constant)) == 1 and constant[0] == falling[0]


def test_a_forward_step_keeps_no_graph_and_no_optimizer(spec_values):
    subject = subject_of(spec_values, mode="forward")
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: pytest.fail("saved for a backward pass"), id):
        run_steps(subject, 1, PhaseClock(CPU, "measure", Progress()))
    assert subject.optimizer is None and subject.losses == []


def test_bf16_computes_in_bf16_and_keeps_weights_in_fp32(spec_values):
    subject = subject_of(spec_values, precision="bf16")
    dtypes = []
    subject.model.head.register_forward_hook(lambda module, inputs, output: dtypes.append(output.dtype))
    run_steps(subject, 1, PhaseClock(CPU, "measure", Progress()))
    assert dtypes == [torch.bfloat16]
    assert {parameter.dtype for parameter in subject.model.parameters()} == {torch.float32}
    assert finite_losses(subject)[0] == pytest.approx(finite_losses_in_fp32(spec_values)[0], rel=0.02)


def finite_losses_in_fp32(values: dict) -> list[float]:
    subject = subject_of(values)
    run_steps(subject, 1, PhaseClock(CPU, "measure", Progress()))
    return finite_losses(subject)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_an_error_with_its_step_and_value(spec_values, value):
    subject = subject_of(spec_values)
    subject.losses = [torch.tensor(2.0), torch.tensor(value)]
    with pytest.raises(FloatingPointError, match=f"loss of step 1 .* of tiny_ctx8_train_step is {value}"):
        finite_losses(subject)


def test_progress_names_the_window_step_and_phase_that_failed(spec_values, monkeypatch):
    subject, progress = subject_of(spec_values), Progress()
    subject.model = RaisingModel(RuntimeError("broken"), at=1)
    subject.optimizer = None
    with pytest.raises(RuntimeError):
        run_steps(subject, 3, PhaseClock(CPU, "warmup", progress))
    assert progress.during == "warmup step 1: forward"
