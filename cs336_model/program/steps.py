"""The loop of warm-up and measured steps, and the clocks of a step and its phases."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from timeit import default_timer

import torch
from torch import Tensor, nn

from cs336_model import ranges
from cs336_model.model.optimizer import AdamW
from cs336_model.program.device import Moment, moment, seconds_between, synchronize
from cs336_model.program.outputs import Output, loss_arguments, loss_of, read_output
from cs336_model.program.parallel.ranks import mean_over_ranks, wait_for_all
from cs336_model.program.parallel.reduction import REDUCTIONS, NoReduction
from cs336_model.program.process import Progress
from cs336_model.program.spec import MODULES, RunSpec
from cs336_model.program.subject import build_variant, count_parameters, make_batch
from cs336_model.program.variants.effects import is_compiled
from cs336_model.program.variants.precision import autocast
from cs336_model.program.variants.values import FUSED, reduces_only_gradients
from cs336_model.ranges import span


@dataclass
class Subject:
    """What is measured: a model with its data, its optimizer and what it has computed. Losses stay on the device until
    all steps are done: reading one would wait for it."""

    spec: RunSpec
    device: torch.device
    model: nn.Module
    optimizer: AdamW | torch.optim.Optimizer | None
    inputs: Tensor
    targets: Tensor
    losses: list[Tensor] = field(default_factory=list)
    reduction: NoReduction = field(default_factory=NoReduction)
    parameter_count: int | None = None  # elements of the parameters of all processes together
    after_first_step: Callable[["Subject", Output], None] | None = None  # called once

    def __post_init__(self) -> None:
        self.parameters = list(self.model.parameters())  # walking the modules in every step would take host time
        self.loss_arguments = loss_arguments(self.model, self.inputs, self.targets)

    def free_model(self) -> None:
        """Frees model, gradients and optimizer; no step can follow."""
        self.model = self.optimizer = None
        self.parameters.clear()
        self.reduction = NoReduction()

    def autocast(self) -> AbstractContextManager:
        """The context of the forward pass and the loss in the run's precision."""
        return autocast(self.spec, self.device)

    def forward(self, *, with_loss: bool) -> Output:
        """One forward pass; `with_loss` asks the model for its loss if it computes one."""
        arguments = self.loss_arguments if with_loss else {}
        return read_output(self.model(self.inputs, **arguments), self.spec)


def make_subject(spec: RunSpec, device: torch.device) -> Subject:
    """The run's variant of the model, its batch, and the optimizer's state if the mode has an optimizer, all made on
    the device."""
    model = build_variant(spec, device)
    if spec.annotate == MODULES and not is_compiled(spec):  # in a compiled graph no module is called
        ranges.mark_modules(model)
    reduction, count = REDUCTIONS[spec.dimensions["parallel"]](), count_parameters(model)
    model = reduction.wrap(model)
    optimizer = None
    if ranges.OPTIMIZER in spec.phases:  # after `wrap`, which may leave only parts of parameters here
        is_fused, parameters = spec.dimensions["optimizer"] == FUSED, model.parameters()
        optimizer = torch.optim.AdamW(parameters, fused=True) if is_fused else AdamW(parameters)
    subject = Subject(
        spec, device, model, optimizer, *make_batch(spec, device), reduction=reduction, parameter_count=count
    )
    synchronize(device)
    return subject


class PhaseClock:
    """Times of the phases of a window's steps. On a GPU, they are between CUDA events on the stream, which are read
    after the window, so that no phase waits for the device; on a CPU, between readings of default_timer."""

    def __init__(self, device: torch.device, window: str, progress: Progress) -> None:
        self.device = device
        self.window, self.progress = window, progress
        self.step = 0
        self._phases: list[tuple[str, Moment, Moment]] = []  # name, start and end

    @property
    def name(self) -> str:
        return "cuda_event" if self.device.type == "cuda" else "default_timer"

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.progress.during = f"{self.window} step {self.step}: {name}"
        start = moment(self.device)
        with span(name):
            yield
        self._phases.append((name, start, moment(self.device)))

    def seconds(self) -> dict[str, list[float]]:
        """Seconds of each phase, in the order of the steps; an empty list for phases that never ran. The device must be
        idle."""
        seconds: dict[str, list[float]] = {phase: [] for phase in ranges.PHASES}
        for name, start, end in self._phases:
            seconds[name].append(seconds_between(start, end))
        return seconds


def run_steps(subject: Subject, count: int, clock: PhaseClock) -> list[float]:
    """Seconds of each of `count` steps inside the clock's window, including the wait for the device at its end. The
    device must be idle before."""
    seconds = []
    with span(clock.window):
        for step in range(count):
            clock.step = step
            seconds.append(timed_step(subject, clock))
    return seconds


def timed_step(subject: Subject, clock: PhaseClock) -> float:
    """Seconds of one step. Calls `after_first_step` after the very first: its gradients and its output exist until the
    next begins."""
    start_s = default_timer()
    with span(ranges.STEP):
        output = run_step(subject, clock)
        with span(ranges.SYNCHRONIZE):
            synchronize(subject.device)
    seconds = default_timer() - start_s
    if (after_first_step := subject.after_first_step) is not None:
        subject.after_first_step = None
        after_first_step(subject, output)
    return seconds


def seconds_without_communication(subject: Subject, progress: Progress) -> list[float]:
    """Seconds of half as many steps (rounded up) as were measured, without communication: each rank keeps the gradients
    of its part of the batch. [] for a run of one process, and where communication cannot be left out. If there is an
    optimizer, the ranks have different weights afterwards."""
    if subject.spec.dimensions["gpus"] == 1 or not reduces_only_gradients(subject.spec.dimensions):
        return []
    wait_for_all(subject.device)
    with subject.reduction.paused():
        clock = PhaseClock(subject.device, ranges.NO_SYNC, progress)
        return run_steps(subject, (subject.spec.measured_steps + 1) // 2, clock)


def run_step(subject: Subject, clock: PhaseClock) -> Output:
    """The output of the model in one step of the spec's mode. First, gradients are set to None, outside of any phase:
    that launches nothing, and the backward pass then writes gradients instead of adding to zeros."""
    phases = subject.spec.phases
    for parameter in subject.parameters:
        parameter.grad = None
    with torch.set_grad_enabled(ranges.BACKWARD in phases), clock.phase(ranges.FORWARD), subject.autocast():
        output = subject.forward(with_loss=ranges.LOSS in phases)
    if ranges.LOSS not in phases:
        return output
    with clock.phase(ranges.LOSS), subject.autocast():
        loss = loss_of(output, subject.targets)
        subject.losses.append(loss.detach())
    with clock.phase(ranges.BACKWARD):
        loss.backward()
        subject.reduction.finish()
    if subject.optimizer is not None:
        with clock.phase(ranges.OPTIMIZER):
            subject.optimizer.step()
    return output


def loss_of_forward(subject: Subject) -> Tensor:
    """The loss of an extra forward pass, for mode `forward`, whose steps compute none."""
    with torch.no_grad(), subject.autocast():
        return loss_of(subject.forward(with_loss=True), subject.targets)


class NotFinite(FloatingPointError):
    """The loss of a step is NaN or infinite. `step` counts all steps from 0: compilation, warm-up, measured."""

    def __init__(self, run: str, step: int, loss: float) -> None:
        self.step = step
        super().__init__(
            f"the loss of step {step} (counted from 0, the first of all) of {run} is {loss}: "
            "its times mean nothing; check the model's initialisation, or use precision fp32"
        )


def finite_losses(subject: Subject) -> list[float]:
    """The losses of the entire batch on the host, in the order of the steps. Raises NotFinite with the first that is
    NaN or infinite."""
    losses = torch.stack(mean_over_ranks(subject.losses)).tolist()
    for step, loss in enumerate(losses):
        if not math.isfinite(loss):
            raise NotFinite(subject.spec.run, step, loss)
    return losses
