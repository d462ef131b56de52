"""A student's FlashAttention as the attention of a run, and its comparison with attention in fp64.

The adapter returns a torch.autograd.Function, whose `apply(q, k, v, is_causal)` takes tensors (batch, length, width).
The handout promises that lengths and widths are powers of two, 16 or more, so no others are tested.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from cs336_model import ranges
from cs336_model.program.adapters.checking import calling, make_check, require_right
from cs336_model.program.adapters.names import NEEDED
from cs336_model.program.device import synchronize
from cs336_model.program.targets import find_object
from cs336_model.program.variants.precision import dtype_of
from cs336_model.program.variants.values import FP32, TF32, UNIT_ROUNDOFF
from cs336_model.program.without_times import Check

Apply = Callable[[Tensor, Tensor, Tensor, bool], Tensor]
QUANTITIES = ("output", "gradient of queries", "gradient of keys", "gradient of values")
# Tolerances of the QUANTITIES, in unit roundoffs of the precision. Every number is a sum of terms. An error is divided
# by the magnitude of the sum: the root of the sum of its terms' squares (see `reference`), which is the error of the
# sum if each term is wrong by 100 %, independently of the others. A term of the output is rounded about eight times:
#   - the score, its scaling and its inputs, each twice: in the numerator and in the denominator of softmax;
#   - the probability, and the output.
# For a gradient, the same happens again. PyTorch's implementations stay below six tenths of these tolerances
# (tests/cs336_model/test_adapters.py).
TOLERANCES = (8.0, 16.0, 16.0, 16.0)
# In every precision, sums are in fp32: a score has one roundoff of fp32 per element of the width, counted twice as
# above. Exponentials are in fp32, too. Their arguments, up to about 10, are rounded, and exp itself is exact to a few
# roundoffs; EXP_ROUNDOFFS, in roundoffs of fp32, allows generously for both.
EXP_ROUNDOFFS = 128.0
LENGTHS = (16, 64, 256)  # for tiles of 64: shorter than one, one, and several (16 to 128 are usual)
MAX_LENGTH, BATCH = 1024, 2


def student_function(attention: str, adapters: dict[str, str]) -> Apply:
    """`apply` of the student's class. Raises Failed if it has none."""
    (name,) = NEEDED["attention"][attention]  # this value needs one adapter
    with calling(attention):  # turns exceptions into Failed
        return find_object(adapters[name])().apply


def student_attention(attention: str, adapters: dict[str, str]) -> Callable[..., Tensor]:
    """The student's causal attention with the signature of the model's scaled_dot_product_attention; the mask `future`
    is not used. The student's code gets contiguous tensors in which batch and heads are one dimension, as the handout's
    tests pass them, and a contiguous gradient. Under autocast, the tensors have autocast's type, and the code runs
    without autocast."""
    apply = student_function(attention, adapters)

    def attend(queries: Tensor, keys: Tensor, values: Tensor, future: Tensor | None) -> Tensor:
        device = queries.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else queries.dtype
        inputs = (tensor.to(dtype).flatten(0, 1).contiguous() for tensor in (queries, keys, values))
        with ranges.span(ranges.SCALED_DOT_PRODUCT_ATTENTION), torch.autocast(device, enabled=False):
            output = apply(*inputs, True)  # causal
        if output.requires_grad:
            output.register_hook(Tensor.contiguous)
        return output.unflatten(0, queries.shape[:2])

    return attend


def checks_of_attention(
    attention: str, adapters: dict[str, str], precision: str, lengths: list[int], width: int, device: torch.device
) -> list[dict[str, Any]]:
    """The checks of a student's attention, as JSON has them: in fp32 and in the run's precision, causal and not, at
    LENGTHS and at the run's `lengths` up to MAX_LENGTH. Raises Wrong, or Failed if the code raises an exception."""
    apply = student_function(attention, adapters)
    tested_lengths = {*LENGTHS, *(length for length in lengths if length <= MAX_LENGTH)}
    shapes = [(BATCH, length, width) for length in sorted(tested_lengths)]
    checks = [
        check
        for case_precision in dict.fromkeys((FP32, precision))
        for shape in shapes
        for causal in (True, False)
        for check in checks_of_shape(attention, apply, case_precision, shape, causal, device)
    ]
    return require_right(checks)


def try_attention(
    attention: str, adapters: dict[str, str], precision: str, shape: tuple[int, int, int], device: torch.device
) -> None:
    """Runs a forward and a backward pass in the shape of the run, so that an error is attributed to the student's code
    and not to the model. Raises Failed."""
    apply = student_function(attention, adapters)
    *inputs, upstream = (torch.randn(shape, dtype=dtype_of(precision), device=device) for _ in range(4))
    with calling(attention, f"with {case_in_words(shape, causal=True)}, {precision}"):
        outputs_and_gradients(apply, inputs, upstream, causal=True)
        synchronize(device)


def case_in_words(shape: tuple[int, int, int], causal: bool) -> str:
    """The case of a check, for people: "length 64, width 16, causal"."""
    return f"length {shape[1]}, width {shape[2]}, {'causal' if causal else 'not causal'}"


def checks_of_shape(
    attention: str, apply: Apply, precision: str, shape: tuple[int, int, int], causal: bool, device: torch.device
) -> Iterator[Check]:
    """Checks of the output and of each gradient for random inputs of a shape (batch, length, width). Raises Failed."""
    case, dtype, (_, length, width) = case_in_words(shape, causal), dtype_of(precision), shape
    generator = torch.Generator(device=device).manual_seed(length)
    *inputs, upstream = (torch.randn(shape, generator=generator, device=device, dtype=dtype) for _ in range(4))
    with calling(attention, f"with {case}, {precision}"):
        computed = outputs_and_gradients(apply, inputs, upstream, causal)
        synchronize(device)
    references, magnitudes = reference(*(tensor.double() for tensor in (*inputs, upstream)), causal=causal)
    quantities = zip(QUANTITIES, TOLERANCES, computed, references, magnitudes, strict=True)
    for quantity, roundoffs, result, expected, magnitude in quantities:
        error = largest_error(attention, quantity, result, expected, magnitude)
        tolerance = tolerance_of(roundoffs, precision, width)
        tf32_tolerance = tolerance_of(roundoffs, TF32, width)  # for checks in fp32 that the code computes in TF32
        yield make_check(attention, case, precision, quantity, error, tolerance, tf32_tolerance)


def tolerance_of(roundoffs: float, precision: str, width: int) -> float:
    """The largest error of a right implementation, relative to the magnitude, for so many roundoffs."""
    return roundoffs * UNIT_ROUNDOFF[precision] + (2 * width + EXP_ROUNDOFFS) * UNIT_ROUNDOFF[FP32]


def outputs_and_gradients(apply: Apply, inputs: list[Tensor], upstream: Tensor, causal: bool) -> list[Tensor | None]:
    """The output, and the gradients of the inputs for the gradient `upstream` of the output. `apply` gets copies, since
    it may overwrite its inputs."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    output = apply(*leaves, causal)
    output.backward(upstream.to(output.dtype, copy=True))
    return [output.detach(), *(leaf.grad for leaf in leaves)]


def reference(
    queries: Tensor, keys: Tensor, values: Tensor, upstream: Tensor, *, causal: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """(results, magnitudes) of the output and of the gradients of queries, keys and values, all in fp64; `upstream` is
    the gradient of the output. Each result is a sum; its magnitude is the root of the sum of its terms' squares."""
    scale = queries.shape[-1] ** -0.5
    scores = queries @ keys.mT * scale
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(diagonal=1)
        scores = scores.masked_fill(future, -math.inf)
    weights = scores.softmax(dim=-1)
    output = weights @ values
    # The gradient of softmax is weights * (weight gradients - row means). A row's mean is the sum of weights * weight
    # gradients over the row, which is also the sum of upstream * output. Score gradients thus have two terms.
    weight_gradients = upstream @ values.mT
    row_means = (upstream * output).sum(dim=-1, keepdim=True)
    score_gradients = weights * (weight_gradients - row_means) * scale
    score_squares = (weights * scale) ** 2 * (weight_gradients**2 + row_means**2)
    results = [output, score_gradients @ keys, score_gradients.mT @ queries, weights.mT @ upstream]
    square_sums = [weights**2 @ values**2, score_squares @ keys**2]
    square_sums += [score_squares.mT @ queries**2, (weights**2).mT @ upstream**2]
    return results, [square_sum.sqrt() for square_sum in square_sums]


def largest_error(attention: str, quantity: str, result: Tensor | None, expected: Tensor, magnitude: Tensor) -> float:
    """The largest, over rows, of norm(error) ÷ norm(magnitude); inf if a number is not finite. Raises Failed if the
    result is missing or has another shape."""
    if result is None or result.shape != expected.shape:
        shape = "missing" if result is None else f"of shape {tuple(result.shape)}, not {tuple(expected.shape)}"
        with calling(attention):  # the error becomes Failed, with the name of the implementation
            raise ValueError(f"{quantity} is {shape}")
    error = (result.double() - expected).norm(dim=-1) / magnitude.norm(dim=-1)
    return float(error.max()) if bool(torch.isfinite(result).all()) else math.inf
