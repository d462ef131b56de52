"""Attention is found by what is launched, under any name, and nothing else is taken for it."""

from collections.abc import Sequence
from contextlib import nullcontext

import pytest

from kernel_tables.diagnosis.diagnose import Diagnosis, diagnose
from kernel_tables.trace import Trace
from tests.kernel_tables.diagnosis.program import FLASH, GEMM, MUL, SOFTMAX, Program
from tests.kernel_tables.synthetic import Synthetic

SOFTMAX_BACKWARD = SOFTMAX.replace("Forward", "Backward")
LOG_SOFTMAX = SOFTMAX + "<LogSoftMaxForwardEpilogue>"
WARP = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, {}, false>(float*, float const*, int)"
REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MaxOps<float>, unsigned, 4>>"
EXP = "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda(at::TensorIteratorBase&)>(int)"
TOPK = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(at::cuda::detail::TensorInfo<float>)"
WRITTEN_OUT = (REDUCE, MUL, EXP, REDUCE, MUL)
COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
US = {GEMM: 200}  # microseconds; all else takes 100


def said_of(program: Program, tmp_path) -> Diagnosis | None:
    with Trace(program.capture.write(tmp_path / "capture.sqlite")) as trace:
        return next((one for one in diagnose(trace) if one.code == "unfused_attention"), None)


def launch(program: Program, names: Sequence[str]) -> None:
    for name in names:
        program.launch(name, US.get(name, 100))


def module(program: Program, name: str | None, core: Sequence[str], projections: bool = True) -> None:
    """A module that projects, attends and projects."""
    with program.range(name) if name else nullcontext():
        if projections:
            with program.range(f"{name}.c_attn"):
                launch(program, [GEMM])
            launch(program, [MUL])
        launch(program, core)
        if projections:
            with program.range(f"{name}.c_proj"):
                launch(program, [MUL, GEMM])


def step(name: str | None, core: Sequence[str], backward: Sequence[str] = (), projections: bool = True) -> Program:
    program = Program()
    with program.range("step"):
        with program.range("GPT"):
            module(program, name, core, projections)
        with program.range("backward"), program.range("GPT"):
            module(program, name, backward or [GEMM] * 2, projections)
    return program


@pytest.mark.parametrize("name", ["attn", "self_attn", "MultiheadAttention", "mixer", None])
@pytest.mark.parametrize(
    "softmax", [[SOFTMAX], [WARP.format("false")], WRITTEN_OUT], ids=["one", "warp", "written out"]
)
def test_attention_is_found_under_any_name_without_its_projections(name, softmax, tmp_path):
    core = [GEMM, MUL, *softmax, GEMM]
    said = said_of(step(name, core, projections=name is not None), tmp_path)
    assert said.evidence["forward_ms"] == pytest.approx((2 * 200 + 100 * (1 + len(softmax))) / 1e3)
    assert not any("c_attn" in path or "c_proj" in path for path in said.where["ranges"])


@pytest.mark.parametrize("softmax_backward", [[SOFTMAX_BACKWARD], [MUL, REDUCE, MUL]], ids=["one", "written out"])
def test_the_backward_pass_of_attention_is_found_with_its_four_products(softmax_backward, tmp_path):
    softmax = [SOFTMAX] if SOFTMAX_BACKWARD in softmax_backward else WRITTEN_OUT
    backward = [GEMM, GEMM, *softmax_backward, MUL, GEMM, GEMM]
    said = said_of(step("attn", [GEMM, MUL, *softmax, GEMM], backward), tmp_path)
    assert said.evidence["backward_ms"] == pytest.approx((4 * 200 + 100 * (1 + len(softmax_backward))) / 1e3)
    assert not said.evidence["backward_is_a_bound"]
    share = f"({said.gain_percent:.1f} %)"
    assert share in said.message, "what it takes and what fixing it gains are the same kernels"


def test_a_backward_pass_that_is_not_found_is_bounded_by_the_forward_pass_and_that_is_said(tmp_path):
    said = said_of(step("attn", [GEMM, MUL, SOFTMAX, GEMM], [GEMM] * 20), tmp_path)
    assert said.evidence["backward_ms"] == pytest.approx(2.5 * 0.6)
    assert "at most 2.5 times the forward pass" in said.message
    assert f"({said.gain_percent:.1f} %)" in said.message


NO_ATTENTION = {
    "a fused kernel": [GEMM, MUL, FLASH, GEMM],
    "cross entropy": [GEMM, LOG_SOFTMAX, MUL, GEMM],
    "cross entropy of few classes": [GEMM, WARP.format("true"), MUL, GEMM],
    "a router of experts": [GEMM, SOFTMAX, TOPK, MUL, GEMM],
    "a norm that is written out": [GEMM, REDUCE, MUL, REDUCE, MUL, GEMM],
    "elementwise work": [GEMM, MUL, MUL, EXP, GEMM],
    "a loss with a softmax, and its backward pass in the same range": [GEMM, SOFTMAX, MUL, REDUCE, MUL, MUL, GEMM],
    "the same with the softmax in separate kernels": [GEMM, *WRITTEN_OUT, MUL, REDUCE, MUL, MUL, GEMM],
}


@pytest.mark.parametrize("kernels", NO_ATTENTION.values(), ids=NO_ATTENTION)
@pytest.mark.parametrize("name", ["attention", "scaled dot product attention"])
def test_nothing_else_is_taken_for_attention_whatever_it_is_called(name, kernels, tmp_path):
    assert said_of(step(name, kernels, projections=False), tmp_path) is None


def test_copies_that_lay_out_heads_belong_to_attention_up_to_the_projections(tmp_path):
    core = [COPY, COPY, GEMM, MUL, SOFTMAX, COPY, GEMM, COPY]
    said = said_of(step("attn", core), tmp_path)
    assert said.evidence["forward_ms"] == pytest.approx((2 * 200 + 6 * 100) / 1e3)


@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_softmax_of_a_loss_between_forward_and_backward_pass_is_no_attention(has_ranges, tmp_path):
    program = Program()
    for _ in range(3):
        with program.range("step"):
            program.pause(1)
            with program.range("Clip") if has_ranges else nullcontext():
                launch(program, [GEMM, SOFTMAX, MUL])
            program.pause(1)
            with program.range("backward") if has_ranges else nullcontext():
                launch(program, [MUL, SOFTMAX_BACKWARD, GEMM])
            program.pause(1)
    assert said_of(program, tmp_path) is None


def test_the_softmax_that_ends_an_inference_step_is_no_attention_with_the_next_ones_product(tmp_path):
    program = Program()
    for _ in range(3):
        with program.range("step"):
            program.pause(1)
            launch(program, [GEMM, MUL, GEMM, SOFTMAX])
    assert said_of(program, tmp_path) is None


def test_products_and_a_softmax_outside_of_the_model_may_be_a_contrastive_loss_and_that_is_said(tmp_path):
    program = Program()
    for _ in range(3):
        with program.range("step"):
            with program.range("forward"), program.range("Encoder"):
                launch(program, [GEMM, MUL, GEMM])
            launch(program, [MUL, GEMM, *WRITTEN_OUT, GEMM, *WRITTEN_OUT, GEMM])
    said = said_of(program, tmp_path)
    assert said.abstained
    assert "follow each other outside of the model" in said.message


def test_a_softmax_over_a_row_of_logits_between_two_layers_is_no_attention(tmp_path):
    program = Program()
    with program.range("step"):
        for name in (GEMM, SOFTMAX, GEMM):
            program.launch(name, 4)
    assert said_of(program, tmp_path) is None


PROBABILITIES = ("aten::view", "aten::softmax", "aten::dropout")


@pytest.mark.parametrize("product", ["aten::baddbmm", "aten::bmm", "aten::einsum"])
def test_on_the_cpu_eager_attention_of_vision_transformers_is_found(product, tmp_path):
    capture, at = Synthetic().range("step", 0, 1_000_000), 0
    for name in ("aten::linear", "aten::mul", "aten::transpose", product, *PROBABILITIES, product, "aten::linear"):
        capture.kernel(name, at=at, start=at, duration=100_000, device=-1)
        at += 110_000
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        said = [one for one in diagnose(trace) if one.code == "unfused_attention"]
    assert said[0].evidence["without_matmuls_ms"] == pytest.approx(0.4)  # with the transposition before


@pytest.mark.parametrize(("product", "found"), [("aten::matmul", True), ("aten::linear", False)])
def test_on_the_cpu_products_of_two_tensors_make_attention_and_layers_do_not(product, found, tmp_path):
    capture, at = Synthetic().range("step", 0, 1_000_000), 0
    for name in ("aten::linear", "aten::view", product, "aten::mul", "aten::softmax", product, "aten::linear"):
        capture.kernel(name, at=at, start=at, duration=100_000, device=-1)
        at += 110_000
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        said = [one for one in diagnose(trace) if one.code == "unfused_attention"]
    assert bool(said) == found
    assert not found or said[0].gain_ms == pytest.approx(0.5)  # with the view, and without the layers
