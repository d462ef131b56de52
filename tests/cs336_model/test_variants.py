"""Every variant of the program: what it changes, what it leaves, and what is refused."""

from functools import partial

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.utils import counters

from cs336_model import variants
from cs336_model.benchmark import Subject
from cs336_model.variants import Unsupported
from tests.cs336_model.conftest import make_spec

UNIT_ROUNDOFF = {"bf16": 2**-8, "bf16-weights": 2**-8, "fp16": 2**-11}


def run_one_step(**changes) -> tuple[float, torch.Tensor]:
    """The loss and the gradients of a changed run after its first forward and backward pass."""
    subject = Subject(make_spec(mode="forward_backward", **changes), torch.device("cpu"))
    subject.run_steps("measure", 1)
    return subject.read_losses()[0], torch.cat([one.grad.flatten().float() for one in subject.parameters])


@pytest.mark.parametrize(
    "changes",
    [{"attention": "math"}, {"attention": "flash"}, {"checkpoint": "1"}, {"checkpoint": "2-1"}, {"precision": "tf32"}],
    ids=str,
)
def test_a_variant_in_fp32_gives_the_loss_and_gradients_of_the_eager_program(monkeypatch, changes):
    loss, gradients = run_one_step()
    assert torch.get_float32_matmul_precision() == "highest"
    seen, real = [], torch.nn.functional.scaled_dot_product_attention
    watched = lambda *given, **more: seen.append(result := real(*given, **more)) or result  # noqa: E731
    monkeypatch.setattr(variants, "scaled_dot_product_attention", watched)
    of_variant = run_one_step(**changes)
    assert of_variant[0] == pytest.approx(loss, rel=1e-5)
    torch.testing.assert_close(of_variant[1], gradients, rtol=1e-3, atol=1e-6)
    assert (torch.get_float32_matmul_precision() == "high") == ("precision" in changes)
    if changes.get("attention") == "flash":
        operators = [type(result.grad_fn).__name__ for result in seen]
        assert operators == ["ScaledDotProductFlashAttentionForCpuBackward0"] * 2


@pytest.mark.parametrize("precision", UNIT_ROUNDOFF)
def test_a_lower_precision_is_off_by_its_rounding_and_no_more(precision):
    (_, plain), (_, variant) = run_one_step(), run_one_step(precision=precision)
    assert 2**-24 < (variant - plain).norm() / plain.norm() < 16 * UNIT_ROUNDOFF[precision]


def test_a_reason_of_pytorch_is_published_in_one_line_without_paths():
    reason = "C++ compile error\n  /home/me/x.cpp and '/tmp/inductor/ab/cab.h' failed; see https://pytorch.org/docs"
    assert str(Unsupported(reason)) == "C++ compile error x.cpp and 'cab.h' failed; see https://pytorch.org/docs"
    assert len(str(Unsupported("x" * 5000))) < 520


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        (
            BackendCompilerFailed(print, RuntimeError("no Triton here"), None),
            Unsupported,
            "on: RuntimeError: no Triton",
        ),
        (BackendCompilerFailed(print, torch.OutOfMemoryError("2 GiB"), None), torch.OutOfMemoryError, "2 GiB"),
        (ZeroDivisionError("no such"), ZeroDivisionError, "no such"),
    ],
)
def test_what_a_compiler_refuses_is_unsupported_with_its_own_reason(raised, expected, message):
    with pytest.raises(expected, match=message), variants.compiling(make_spec(compile="on")):
        raise raised


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler imports what it has deprecated
def test_a_compiled_run_is_one_graph_compiled_before_the_warm_up(measure, monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))  # inductor takes half a minute
    torch._dynamo.reset()  # of what other tests compiled
    counters.clear()
    result = measure(compile="attention", mode="forward")
    assert (result.status, result.graph_breaks) == ("complete", 0)
    assert result.compile_seconds > result.warmup_seconds[0]
    assert (len(result.warmup_seconds), len(result.step_seconds), len(result.losses)) == (1, 2, 1)
