"""Every variant of the program: what it changes, what it leaves, and what is refused."""

import json

import pytest
import torch

from cs336_model import ranges
from cs336_model.program.process import Progress
from cs336_model.program.spec import read_spec
from cs336_model.program.steps import PhaseClock, Subject, make_subject, run_steps
from cs336_model.program.variants import attention
from cs336_model.program.variants.effects import process_settings
from cs336_model.program.variants.values import UNIT_ROUNDOFF
from cs336_model.program.without_times import Unsupported
from tests.cs336_model.specs import changed

CPU = torch.device("cpu")


def after_one_step(values: dict, **changes) -> Subject:
    """The subject of a changed run after its first forward and backward pass."""
    spec = read_spec(json.dumps(changed(values, mode="forward_backward", **changes)))
    with process_settings(spec):
        subject = make_subject(spec, CPU)
        run_steps(subject, 1, PhaseClock(CPU, "measure", Progress()))
    return subject


def gradients(subject: Subject) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten().float() for parameter in subject.parameters])


@pytest.mark.parametrize(
    "changes",
    [{"attention": "math"}, {"attention": "flash"}, {"checkpoint": "1"}, {"checkpoint": "2-1"}, {"precision": "tf32"}],
    ids=str,
)
def test_a_variant_in_fp32_gives_the_loss_and_gradients_of_the_eager_program(spec_values, changes):
    plain, variant = after_one_step(spec_values), after_one_step(spec_values, **changes)
    torch.testing.assert_close(variant.losses[0], plain.losses[0], rtol=1e-5, atol=0)
    torch.testing.assert_close(gradients(variant), gradients(plain), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("precision", ["bf16", "fp16", "bf16-weights"])
def test_a_lower_precision_is_off_by_its_rounding_and_no_more(spec_values, precision):
    plain, variant = after_one_step(spec_values), after_one_step(spec_values, precision=precision)
    off = torch.linalg.vector_norm(gradients(variant) - gradients(plain)) / torch.linalg.vector_norm(gradients(plain))
    assert UNIT_ROUNDOFF["fp32"] < off < 16 * UNIT_ROUNDOFF[precision]


def test_bf16_weights_are_bf16_with_their_gradients_while_rotary_angles_stay_fp32(spec_values):
    subject = after_one_step(spec_values, precision="bf16-weights")
    assert {tensor.dtype for parameter in subject.parameters for tensor in (parameter, parameter.grad)} == {
        torch.bfloat16
    }
    assert subject.model.rope.cos.dtype == torch.float32


@pytest.mark.parametrize(("precision", "setting"), [("fp32", "highest"), ("tf32", "high"), ("bf16", "highest")])
def test_fp32_products_may_use_tf32_where_it_is_asked_for_and_nowhere_else(spec_values, precision, setting):
    after_one_step(spec_values, precision=precision)
    assert torch.get_float32_matmul_precision() == setting


def test_fused_attention_is_one_operator_of_the_forced_backend(spec_values, monkeypatch):
    seen, real = [], torch.nn.functional.scaled_dot_product_attention

    def watched(*arguments, **options):
        result = real(*arguments, **options)
        seen.append(type(result.grad_fn).__name__)
        return result

    monkeypatch.setattr(attention, "scaled_dot_product_attention", watched)
    after_one_step(spec_values, attention="flash")
    tried, *in_model = seen
    assert in_model == ["ScaledDotProductFlashAttentionForCpuBackward0"] * 2
    assert tried == in_model[0]


@pytest.mark.parametrize("backend", ["efficient", "cudnn"])
def test_a_backend_that_this_machine_refuses_is_a_result_with_pytorchs_reason(run_benchmark, backend):
    result = run_benchmark(attention=backend)
    assert result["status"] == "unsupported"
    assert result["reason"].startswith(f"attention {backend}: No viable backend for scaled_dot_product_attention")
    assert result["step_seconds"] == [] and result["machine"]["device"] == "cpu"


def test_another_failure_of_attention_is_no_result(spec_values, monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("a defect")

    monkeypatch.setattr(attention, "scaled_dot_product_attention", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        after_one_step(spec_values, attention="math")


@pytest.mark.parametrize(("checkpoint", "recomputed"), [("1", 4), ("2", 4), ("3", 4), ("9", 4), ("4-2", 6), ("3-1", 6)])
def test_all_blocks_of_a_checkpoint_run_again_inside_recomputation(spec_values, monkeypatch, checkpoint, recomputed):
    """Four blocks; a block's range is opened four times forward, and again where it is computed again: of nested
    checkpoints, all but the last group inside a group are computed twice."""
    open_ranges, paths = [], []

    def push(name):
        open_ranges.append(name)
        paths.append(tuple(open_ranges))

    monkeypatch.setattr("nvtx.push_range", push)
    monkeypatch.setattr("nvtx.pop_range", open_ranges.pop)
    ranges.emit_ranges("nvtx")
    sizes = spec_values["sizes"] | {"num_layers": 4}
    after_one_step(spec_values, checkpoint=checkpoint, sizes=sizes)
    blocks = [path[2:] for path in paths if path[-1] == "block"]
    assert blocks.count(("forward", "block")) == 4
    assert blocks.count(("backward", "recomputation", "block")) == recomputed
    assert set(blocks[4:]) == {("backward", "recomputation", "block"), ("backward", "block")}
    assert open_ranges == []


def test_what_is_recomputed_is_not_kept_for_the_backward_pass(spec_values):
    def kept(**changes) -> int:
        spec, tensors = read_spec(json.dumps(changed(spec_values, mode="forward_backward", **changes))), {}
        subject = make_subject(spec, CPU)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda saved: tensors.setdefault(id(saved), saved), lambda saved: saved
        ):
            subject.model(subject.inputs)
        return sum(tensor.untyped_storage().nbytes() for tensor in tensors.values())

    assert kept(checkpoint="2") < kept(checkpoint="1") < kept()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compile": "on", "checkpoint": "1"}, "compile on with checkpoint 1: a compiled graph has no ranges"),
        ({"attention": "flash", "constructor": "their_module:LM"}, "attention flash with the model their_module:LM"),
        ({"compile": "attention", "constructor": "their_module:LM"}, "compile attention with the model"),
        ({"checkpoint": "2", "constructor": "their_module:LM"}, "checkpoint 2 with the model their_module:LM"),
        ({"attention": "fastest"}, "attention is 'fastest'; it must be one of eager, math, flash"),
        ({"compile": True}, "compile is True; it must be one of off, on, attention"),
        ({"checkpoint": "8/2"}, "checkpoint is '8/2'; it must be a text that matches"),
        ({"checkpoint": 1}, "checkpoint is 1; it must be a text"),
        ({"checkpoint": "2-2"}, "checkpoint 2-2: the groups inside a group must be smaller"),
    ],
)
def test_what_no_machine_can_measure_is_refused_in_one_line(spec_values, changes, message):
    with pytest.raises(ValueError) as error:
        read_spec(json.dumps(changed(spec_values, **changes)))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_reason_of_pytorch_is_published_in_one_line_without_paths():
    reason = "C++ compile error\n  /home/me/x.cpp and '/tmp/inductor/ab/cab.h' failed; see https://pytorch.org/docs"
    assert str(Unsupported("compile on", reason)) == (
        "compile on: C++ compile error x.cpp and 'cab.h' failed; see https://pytorch.org/docs"
    )
    assert len(str(Unsupported("compile on", "x" * 5000))) < 520
