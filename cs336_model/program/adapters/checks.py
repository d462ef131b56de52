"""Calls all checks of a student's code before anything is timed, and defines those for several GPUs.

DDP, FSDP and a sharded optimizer are compared with a reference that trains on the same batch. Every process computes
the reference itself, on the whole batch and without communication. The model is that of the run with at most two
layers. DDP and FSDP train with SGD, whose updates are as wrong as the gradients: AdamW would hide a wrong factor.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cs336_model.arithmetic.flops import sequences_per_gpu, shape_of
from cs336_model.program.adapters.attention import checks_of_attention, try_attention
from cs336_model.program.adapters.checking import calling, make_check, require_right
from cs336_model.program.adapters.distributed import AdaptedReduction, adapted_optimizer
from cs336_model.program.adapters.names import NEEDED
from cs336_model.program.outputs import loss_of, read_output
from cs336_model.program.parallel.ranks import gather_numbers, mean_over_ranks, this_rank
from cs336_model.program.parallel.sharding import ADAMW_SETTINGS, GroupedAdamW
from cs336_model.program.spec import RunSpec
from cs336_model.program.subject import build_variant, inputs_and_targets, whole_batch
from cs336_model.program.targets import find_object
from cs336_model.program.variants.precision import autocast
from cs336_model.program.variants.values import (
    BF16,
    BF16_WEIGHTS,
    FP16,
    FP32,
    OWN_ATTENTIONS,
    OWN_DDP,
    OWN_FSDP,
    OWN_SHARDED,
    TF32,
    UNIT_ROUNDOFF,
)
from cs336_model.program.without_times import Check

LAYERS, STEPS, LEARNING_RATE = 2, 3, 0.1
# The largest allowed errors, relative to the loss, or to the gradient or update of a parameter. The errors of PyTorch's
# own DDP and FSDP are a tenth (fp32) to a third of these (tests/cs336_model/test_adapters_of_ranks.py). A wrong factor,
# or gradients of a part of the batch, give errors of 0.3 and more.
TOLERANCES = {FP32: 1e-3, TF32: 3e-2, FP16: 3e-2, BF16: 1e-1}


def checks_of_adapters(spec: RunSpec, device: torch.device) -> list[dict[str, Any]]:
    """The checks, as JSON has them; [] for a run without a student's code. Raises Wrong or Failed."""
    checks = []
    if spec.dimensions["attention"] in OWN_ATTENTIONS:
        checks += _checks_of_attention(spec, device)
    if spec.dimensions["parallel"] in (OWN_DDP, OWN_FSDP):
        checks += checks_of_reduction(spec, device)
    if spec.dimensions["optimizer"] == OWN_SHARDED:
        checks += checks_of_optimizer(spec, device)
    return checks


def _checks_of_attention(spec: RunSpec, device: torch.device) -> list[dict[str, Any]]:
    attention, precision = spec.dimensions["attention"], spec.dimensions["precision"]
    length, shape = spec.dimensions["context_length"], shape_of(vars(spec))
    checks = checks_of_attention(attention, spec.adapters, precision, [length], shape.d_head, device)
    # the checks use small shapes; the code may still fail in the shape of the run
    run_shape = (shape.batch_size * shape.num_heads, length, shape.d_head)
    try_attention(attention, spec.adapters, precision, run_shape, device)
    return checks


@dataclass(frozen=True)
class TrainingResult:
    """Losses, gradients and parameters of some steps."""

    losses: list[Tensor]  # of the whole batch, in each step
    gradients: dict[str, Tensor | None]  # of the first step, by the name of the parameter
    parameters: dict[str, Tensor]  # after the last step, by name


def checks_of_reduction(spec: RunSpec, device: torch.device) -> list[dict[str, Any]]:
    """The checks of a student's DDP or FSDP, as JSON has them. Raises Wrong or Failed."""
    parallel, small_run = spec.dimensions["parallel"], small_spec(spec)
    expected = train_on_whole_batch(small_run, device, partial(torch.optim.SGD, lr=LEARNING_RATE))
    reduction = AdaptedReduction(parallel, small_run.adapters, small_run.dimensions["precision"])
    model = reduction.wrap(build_variant(small_run, device))
    with calling(parallel):  # turns exceptions into Failed: model.parameters() is a student's code
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    rank_part = whole_batch(small_run, device).split(sequences_per_gpu(small_run.dimensions))[this_rank().number]
    losses, gradients = [], {}
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        with calling(parallel, f"in step {step}"):
            loss = loss_of_part(small_run, model, rank_part, device)
            loss.backward()
        reduction.finish(optimizer)
        losses.append(loss.detach())
        if step == 0 and parallel == OWN_DDP:
            first_gradients = [parameter.grad for parameter in model.parameters()]
            gradients = copies_by_name(expected.gradients, first_gradients, parallel)
        optimizer.step()
    if parallel == OWN_DDP:
        parameters = copies_by_name(expected.parameters, list(model.parameters()), parallel)
    else:
        parameters = gathered_parameters(model, small_run, expected.parameters)
    result = TrainingResult(mean_over_ranks(losses), gradients, parameters)
    return require_right(training_checks(small_run, parallel, result, expected, device))


def checks_of_optimizer(spec: RunSpec, device: torch.device) -> list[dict[str, Any]]:
    """The checks of a student's sharded optimizer, as JSON has them: every process computes the gradients of the whole
    batch. Raises Wrong or Failed."""
    small_run = small_spec(spec)
    expected = train_on_whole_batch(small_run, device, partial(GroupedAdamW, **ADAMW_SETTINGS))
    students_optimizer = partial(adapted_optimizer, adapters=spec.adapters)
    result = train_on_whole_batch(small_run, device, students_optimizer, implementation=OWN_SHARDED)
    result = replace(result, gradients={})  # not checked: the student's code did not compute them
    return require_right(training_checks(small_run, OWN_SHARDED, result, expected, device))


def small_spec(spec: RunSpec) -> RunSpec:
    """The specification with at most two layers, and with weights in fp32: updates of bf16 weights are rounded away."""
    precision = spec.dimensions["precision"]
    dimensions = spec.dimensions | {"precision": FP32 if precision == BF16_WEIGHTS else precision}
    layers = spec.sizes.get("num_layers")
    sizes = spec.sizes | ({"num_layers": min(layers, LAYERS)} if layers else {})
    return replace(spec, dimensions=dimensions, sizes=sizes)


def train_on_whole_batch(
    spec: RunSpec,
    device: torch.device,
    make_optimizer: Callable[..., Any],
    implementation: str = "",
) -> TrainingResult:
    """The steps on the whole batch in every process, one rank's part after another. `implementation` is the name of a
    student's optimizer, whose exceptions become Failed; "" for another optimizer."""
    model = build_variant(spec, device)
    optimizer = make_optimizer(model.parameters())
    parts = whole_batch(spec, device).split(sequences_per_gpu(spec.dimensions))
    losses, gradients = [], {}
    for step in range(STEPS):
        model.zero_grad(set_to_none=True)
        losses.append(torch.zeros((), device=device))
        for part in parts:
            loss = loss_of_part(spec, model, part, device) / len(parts)
            loss.backward()
            losses[-1] += loss.detach()
        if step == 0:
            gradients = {name: detached_copy(parameter.grad) for name, parameter in model.named_parameters()}
        with calling(implementation):
            optimizer.step()
    parameters = {name: detached_copy(parameter) for name, parameter in model.named_parameters()}
    return TrainingResult(losses, gradients, parameters)


def loss_of_part(spec: RunSpec, model: nn.Module, part: Tensor, device: torch.device) -> Tensor:
    """The loss of these sequences in the run's precision."""
    inputs, targets = inputs_and_targets(part)
    with autocast(spec, device):
        return loss_of(read_output(model(inputs), spec), targets)


def gathered_parameters(model: nn.Module, spec: RunSpec, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The entire parameters of a student's FSDP, by their names in the plain model. The names that the student's code
    returns may have a prefix. Raises Failed unless exactly one of them fits each name, and its shape is right."""
    parallel = spec.dimensions["parallel"]
    _, _, adapter = NEEDED["parallel"][parallel]  # fsdp_gather_full_params
    with calling(parallel):
        parameters, values = find_object(spec.adapters[adapter])(model), []
        for name in expected:
            keys = [key for key in parameters if key == name or key.endswith(f".{name}")]
            if len(keys) != 1:
                raise KeyError(f"{adapter} returned {len(keys)} parameters named {name}")
            values.append(parameters[keys[0]])
    return copies_by_name(expected, values, parallel)


def copies_by_name(
    expected: Mapping[str, Tensor | None], values: list[Tensor | None], implementation: str
) -> dict[str, Tensor | None]:
    """Copies of values by the names of `expected`. Raises Failed if they differ from it in number or shapes."""
    copies = {}
    with calling(implementation):
        if len(values) != len(expected):
            raise ValueError(f"the model has {len(values)} parameters, not {len(expected)}")
        for (name, reference), value in zip(expected.items(), values, strict=True):
            shape, expected_shape = (None if tensor is None else tuple(tensor.shape) for tensor in (value, reference))
            if shape != expected_shape:
                raise ValueError(f"the shape of {name} is {shape}, not {expected_shape}")
            copies[name] = detached_copy(value)
    return copies


def detached_copy(tensor: Tensor | None) -> Tensor | None:
    """A copy without a graph."""
    return None if tensor is None else tensor.detach().clone()


def training_checks(
    spec: RunSpec, implementation: str, result: TrainingResult, expected: TrainingResult, device: torch.device
) -> list[Check]:
    """One check each of losses, gradients (if there are any) and parameters, with the largest error of any rank. Errors
    of losses and gradients are divided by the reference. Errors of a parameter are divided by its change in training,
    without what the parameter's rounding explains."""
    loss_errors = [
        QuantityError("loss", relative_error(loss, reference, scale=reference))
        for loss, reference in zip(result.losses, expected.losses, strict=True)
    ]
    gradient_errors = [
        QuantityError(f"gradient of {name}", relative_error(value, reference, scale=reference))
        for name, value in result.gradients.items()
        if (reference := expected.gradients[name]) is not None
    ]
    parameter_errors, initial = [], dict(build_variant(spec, device).named_parameters())
    for name, value in result.parameters.items():
        reference = expected.parameters[name]
        rounding = STEPS * UNIT_ROUNDOFF[FP32] * float(reference.norm())
        error = relative_error(value, reference, scale=reference - initial[name].detach(), rounding=rounding)
        parameter_errors.append(QuantityError(f"parameter of {name}", error))
    case, precision, checks = f"{this_rank().count} processes, {STEPS} steps", spec.dimensions["precision"], []
    for errors in filter(None, (loss_errors, gradient_errors, parameter_errors)):
        quantity, error = largest_on_any_rank(errors, device)
        checks.append(make_check(implementation, case, precision, quantity, error, TOLERANCES[precision]))
    return checks


class QuantityError(NamedTuple):
    """The relative error of a quantity, such as "gradient of head.weight"."""

    quantity: str
    error: float


def largest_on_any_rank(errors: list[QuantityError], device: torch.device) -> QuantityError:
    """The quantity with the largest of these errors on any rank; NaN counts as infinity."""
    numbers = [math.inf if math.isnan(error) else error for _, error in errors]
    errors_of_ranks = gather_numbers(numbers, device)
    rank, index = divmod(int(errors_of_ranks.argmax()), len(errors))
    return QuantityError(errors[index].quantity, float(errors_of_ranks[rank, index]))


def relative_error(value: Tensor, reference: Tensor, scale: Tensor, rounding: float = 0.0) -> float:
    """|value − reference|, minus `rounding`, divided by |scale|, in the Euclidean norm. If the scale is 0, it is 0
    without an error and infinity with one."""
    distance = float((value.double() - reference.double()).norm())
    if math.isnan(distance):
        return distance
    error, scale_norm = max(distance - rounding, 0.0), float(scale.double().norm())
    if scale_norm == 0:
        return math.inf if error else 0.0
    return error / scale_norm
