"""Runs the steps of one model: times them, or lets a profiler record them."""

import argparse
import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from timeit import default_timer

import msgspec
import torch
from torch import Tensor, nn
from torch.autograd.profiler import profile

from cs336_model import ranges, variants
from cs336_model.device import Place, mark_moment, seconds_between, synchronize
from cs336_model.loading import build_model, loss_arguments, loss_of, read_output
from cs336_model.optimizer import AdamW
from cs336_model.ranges import span
from cs336_model.results import STAGES, Timing
from cs336_model.spec import PHASES, Spec, forward_flops


class Progress:
    """What this process does now; after an error, where that happened."""

    during = "context"


class Subject:
    """What all stages step: the model of a run with its data, its optimizer and its losses, which stay on the device
    until all steps are done: to read one would wait for it. Raises variants.Unsupported and loading.UnusableModel.
    cs336_model/parallel.py overrides the methods that do nothing here."""

    def __init__(self, spec: Spec, device: torch.device) -> None:
        Progress.during = "initialise"
        self.spec, self.device = spec, device
        self.autocast = partial(variants.autocast, spec.precision, device)
        model = build_model(spec, device)
        variants.change_model(spec, model)
        if spec.annotate == "modules" and spec.compile == "off":  # in a compiled graph no module is called
            ranges.mark_modules(model)
        self.parameter_count = sum(parameter.numel() for parameter in model.parameters())
        self.model = self.wrap(model)
        self.parameters = list(self.model.parameters())  # to walk the modules in every step would take host time
        self.optimizer: AdamW | torch.optim.Optimizer | None = None
        if "optimizer" in spec.phases:  # after `wrap`, which may leave only parts of parameters here
            is_fused = spec.optimizer == "fused"
            self.optimizer = torch.optim.AdamW(self.parameters, fused=True) if is_fused else AdamW(self.parameters)
        shape = (spec.batch_size, spec.context_length + 1)
        generator = torch.Generator(device=device).manual_seed(spec.seed)
        tokens = self.take_part(torch.randint(spec.vocab_size, shape, generator=generator, device=device))
        self.inputs, self.targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        self.loss_arguments = loss_arguments(self.model, self.inputs, self.targets)
        self.losses: list[Tensor] = []
        self.marks: list[tuple] = []  # (phase, its start, its end)
        self.is_compiled = spec.compile == "off"  # nothing is to be compiled any more
        self.compile_seconds: float | None = None
        synchronize(device)

    def wrap(self, model: nn.Module) -> nn.Module:
        """What a step calls."""
        return model

    def take_part(self, tokens: Tensor) -> Tensor:
        """The sequences of this process."""
        return tokens

    def reduce_gradients(self) -> None:
        """Ends the reduction of the gradients of all processes, after the backward pass."""

    def wait_for_all(self) -> None:
        """Returns when every process of the run is here."""

    def read_losses(self) -> list[float]:
        """The losses of all steps on the host."""
        return torch.stack(self.losses).tolist()

    def time_without_communication(self) -> list[float]:
        """Seconds of steps in which this process reduces no gradients; [] if it is alone, or they cannot do without."""
        return []

    def forward(self, with_loss: bool) -> tuple[Tensor, Tensor | None]:
        """One forward pass; `with_loss` asks the model for its loss if it computes one."""
        returned = self.model(self.inputs, **(self.loss_arguments if with_loss else {}))
        return read_output(returned, self.spec.vocab_size)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A range around a phase, and its time."""
        Progress.during = f"{self.position}: {name}"
        start = mark_moment(self.device)
        with span(name):
            yield
        self.marks.append((name, start, mark_moment(self.device)))

    def run_step(self) -> None:
        """One step of the run's mode. First, gradients are set to None, outside of any phase: that launches nothing,
        and the backward pass then writes gradients instead of adding to zeros."""
        phases = self.spec.phases
        for parameter in self.parameters:
            parameter.grad = None
        with torch.set_grad_enabled("backward" in phases), self.phase("forward"), self.autocast():
            output = self.forward(with_loss="loss" in phases)
        if "loss" not in phases:
            return
        with self.phase("loss"), self.autocast():
            loss = loss_of(*output, self.targets)
            self.losses.append(loss.detach())
        with self.phase("backward"):
            loss.backward()
            self.reduce_gradients()
        if self.optimizer is not None:
            with self.phase("optimizer"):
                self.optimizer.step()

    def run_steps(self, window: str, count: int) -> list[float]:
        """Seconds of each step, with the wait for the device at its end, inside the range `window`. A model that is to
        be compiled first runs one step more, in the range `compile`."""
        if not self.is_compiled:
            self.is_compiled = True
            with variants.compiling(self.spec):
                (self.compile_seconds,) = self.run_steps("compile", 1)
        self.marks.clear()
        seconds = []
        with variants.forced_backend(self.spec.attention), span(window):
            for step in range(count):
                self.position = f"{window} step {step}"
                start = default_timer()
                with span("step"):
                    self.run_step()
                    with span("synchronize"):
                        synchronize(self.device)
                seconds.append(default_timer() - start)
        return seconds

    def phase_seconds(self) -> dict[str, list[float]]:
        """Seconds of each phase of the last steps; an empty list for a phase that the mode does not have."""
        seconds: dict[str, list[float]] = {phase: [] for phase in PHASES["train_step"]}
        for name, start, end in self.marks:
            seconds[name].append(seconds_between(start, end))
        return seconds


def measure(spec: Spec, place: Place, options: argparse.Namespace, subject_class: type[Subject]) -> Timing:
    """The result of the stages timing, capture and counters, by the options of `python -m cs336_model`.

    Memory is freed and the device given back (`place.share`) before a profile is written, and before nsys stops, which
    takes it three seconds; ncu keeps the GPU until this process has ended."""
    if spec.stage == "counters" and spec.layers and "num_layers" in spec.sizes and spec.compile == "off":
        layers = min(spec.sizes["num_layers"], spec.layers)
        spec = msgspec.structs.replace(spec, sizes=spec.sizes | {"num_layers": layers})
    device, profiler = place.device, options.profiler
    subject = subject_class(spec, device)
    result = STAGES[spec.stage](status="complete", parameters=subject.parameter_count)
    result.warmup_seconds = subject.run_steps("warmup", spec.warmup_steps)
    result.warmup_phase_seconds = subject.phase_seconds()
    if profiler in ("nsys", "torch"):
        # Backward hooks make so many objects that a full collection comes within three steps: a tenth of a second.
        gc.collect()
        gc.freeze()
    recording = nullcontext()
    if profiler == "torch":
        # torch.profiler.profile would import the compiler at its start, to check for CUDA graphs
        recording = profile(use_device="cuda" if device.type == "cuda" else None, use_kineto=True)
    is_marked = device.type == "cuda" and profiler in ("nsys", "ncu")
    synchronize(device)  # no earlier work may run in the window
    subject.wait_for_all()
    if is_marked:
        torch.cuda.profiler.start()
    with recording as recorded:
        result.step_seconds = subject.run_steps("measure", spec.measured_steps)
    result.phase_seconds = subject.phase_seconds()
    if device.type == "cuda":  # before further passes
        result.peak_allocated_bytes = torch.cuda.max_memory_allocated(device)
    if spec.compile != "off":
        from torch._dynamo.utils import counters

        result.graph_breaks = counters["graph_break"].total()
    if not subject.losses:  # steps have none; losses show that two runs did the same work
        with torch.no_grad(), subject.autocast(), variants.forced_backend(spec.attention):
            subject.losses.append(loss_of(*subject.forward(with_loss=True), subject.targets))
    result.losses = subject.read_losses()
    result.compile_seconds = subject.compile_seconds
    if profiler == "none":
        result.without_communication_seconds = subject.time_without_communication()
    result.forward_flops = forward_flops(spec) or (count_flops(subject) if spec.stage == "timing" else None)
    del subject
    step = next((step for step, loss in enumerate(result.losses) if not math.isfinite(loss)), None)
    if step is not None:
        result.status = "non_finite"
        result.reason = f"the loss of step {step}, counted from 0 with the warm-up, is {result.losses[step]}"
        result.losses = result.losses[:step]
    if profiler in ("nsys", "torch"):  # which have to end
        place.share()
    if is_marked:
        torch.cuda.profiler.stop()
    if options.close_recording:
        options.close_recording()
    if recorded is not None:
        from kernel_tables.trace import export_capture

        export_capture(recorded, options.capture, on_gpu=device.type == "cuda", torch_version=torch.__version__)
    return result


def count_flops(subject: Subject) -> int:
    """FLOPs of the matrix products of one forward pass of the run's mode, by torch's counter."""
    from torch.utils.flop_counter import FlopCounterMode  # slow to import, and only other people's models need it

    spec = subject.spec
    # `forward` itself is counted, since the counter does not see into a call of a compiled model, and its hooks refuse
    # a model that returns views of its parameters. But only a call gathers the parameters of FSDP.
    forward = subject.model if spec.parallel == "fsdp" else subject.model.forward
    with torch.no_grad(), variants.forced_backend(spec.attention), FlopCounterMode(display=False) as counter:
        forward(subject.inputs, **(subject.loss_arguments if "loss" in spec.phases else {}))
    return counter.get_total_flops()
