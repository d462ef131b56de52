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

CPU = torch.device("cpu")
UNIT_ROUNDOFF = {"fp32": 2**-24, "bf16": 2**-8, "bf16-weights": 2**-8, "fp16": 2**-11}


def run_one_step(**changes) -> Subject:
    """The subject of a changed run after its first forward and backward pass."""
    subject = Subject(make_spec(mode="forward_backward", **changes), CPU)
    subject.run_steps("measure", 1)
    return subject


def gradients(subject: Subject) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten().float() for parameter in subject.parameters])


@pytest.mark.parametrize(
    "changes",
    [{"attention": "math"}, {"attention": "flash"}, {"checkpoint": "1"}, {"checkpoint": "2-1"}, {"precision": "tf32"}],
    ids=str,
)
def test_a_variant_in_fp32_gives_the_loss_and_gradients_of_the_eager_program(changes):
    plain, variant = run_one_step(), run_one_step(**changes)
    torch.testing.assert_close(variant.losses[0], plain.losses[0], rtol=1e-5, atol=0)
    torch.testing.assert_close(gradients(variant), gradients(plain), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("precision", ["bf16", "fp16", "bf16-weights"])
def test_a_lower_precision_is_off_by_its_rounding_and_no_more(precision):
    plain, variant = run_one_step(), run_one_step(precision=precision)
    off = torch.linalg.vector_norm(gradients(variant) - gradients(plain)) / torch.linalg.vector_norm(gradients(plain))
    assert UNIT_ROUNDOFF["fp32"] < off < 16 * UNIT_ROUNDOFF[precision]


@pytest.mark.parametrize(("precision", "setting"), [("tf32", "high"), ("fp32", "highest"), ("bf16", "highest")])
def test_fp32_products_may_use_tf32_where_it_is_asked_for_and_nowhere_else(precision, setting):
    run_one_step(precision=precision)
    assert torch.get_float32_matmul_precision() == setting


def test_fused_attention_is_one_operator_of_the_forced_backend(monkeypatch):
    seen, real = [], torch.nn.functional.scaled_dot_product_attention

    def watched(*arguments, **options):
        result = real(*arguments, **options)
        seen.append(type(result.grad_fn).__name__)
        return result

    monkeypatch.setattr(variants, "scaled_dot_product_attention", watched)
    run_one_step(attention="flash")
    assert seen == ["ScaledDotProductFlashAttentionForCpuBackward0"] * 2


def test_a_backend_that_this_machine_refuses_is_a_result_with_pytorchs_reason(measure):
    result = measure(attention="cudnn")
    assert result.status == "unsupported"
    assert result.reason.startswith("attention cudnn: No viable backend for scaled_dot_product_attention")
    assert result.step_seconds == [] and result.machine.device == "cpu"


def test_a_reason_of_pytorch_is_published_in_one_line_without_paths():
    reason = "C++ compile error\n  /home/me/x.cpp and '/tmp/inductor/ab/cab.h' failed; see https://pytorch.org/docs"
    assert str(Unsupported(reason)) == "C++ compile error x.cpp and 'cab.h' failed; see https://pytorch.org/docs"
    assert len(str(Unsupported("x" * 5000))) < 520


def test_what_a_compiler_refuses_is_unsupported_with_its_own_reason():
    with (
        pytest.raises(Unsupported, match="compile on: RuntimeError: no Triton"),
        variants.compiling(make_spec(compile="on")),
    ):
        raise BackendCompilerFailed(print, RuntimeError("no Triton here"), None)
    with pytest.raises(torch.OutOfMemoryError), variants.compiling(make_spec(compile="on")):
        raise BackendCompilerFailed(print, torch.OutOfMemoryError("Tried to allocate 2 GiB"), None)
    with pytest.raises(ZeroDivisionError), variants.compiling(make_spec(compile="on")):
        1 / 0  # noqa: B018


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler imports what it has deprecated
def test_a_compiled_run_is_one_graph_compiled_before_the_warm_up(measure, monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))  # inductor takes half a minute
    torch._dynamo.reset()  # of what other tests compiled
    counters.clear()
    result = measure(compile="attention", mode="forward")
    assert (result.status, result.graph_breaks) == ("complete", 0)
    assert result.compile_seconds > result.warmup_seconds[0]
    assert len(result.warmup_seconds) == 1 and len(result.step_seconds) == 2
    assert len(result.losses) == 1
