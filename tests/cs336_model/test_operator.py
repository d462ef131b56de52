"""Attention alone: what a cell measures, what is refused, and its FLOPs held against PyTorch's own counter."""

import json
import time

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from cs336_model.arithmetic.flops import BACKWARD_IN_FORWARDS, ModelShape, matmul_flops
from cs336_model.program.operator import row as row_module
from cs336_model.program.operator.bench import call_seconds
from cs336_model.program.operator.row import largest_memory, row_result
from cs336_model.program.operator.spec import read_row
from cs336_model.program.process import Progress
from cs336_model.program.variants.attention import forced_backend, fused_attention
from profile_grid.results.results import ProgramResult
from profile_grid.stages.operator.estimates import FUSED_FORWARDS
from profile_grid.stages.operator.tables import OperatorFacts
from profile_grid.tables.ideal import causal_attention_flops
from profile_grid.typed_json import parse_as

CPU = torch.device("cpu")
VALUES = {
    "run": "attention_d8", "dimensions": {
        "precision": "fp32", "batch_size": 2, "compile": "off", "attention": "eager", "head_dim": 8,
    }, "context_lengths": [8, 16], "warmup_passes": 1, "measured_passes": 3, "bench_s": 0, "seed": 0, "device": "cpu",
}  # fmt: skip


def changed(**dimensions) -> str:
    return json.dumps(VALUES | {"dimensions": VALUES["dimensions"] | dimensions})


def measured(text: str) -> dict:
    return row_result(read_row(text), Progress())


def test_a_row_has_a_cell_per_context_length_with_a_time_of_every_pass():
    result = measured(changed())
    assert [cell["context_length"] for cell in result["cells"]] == [8, 16]
    for cell in result["cells"]:
        assert cell["status"] == "complete"
        assert len(cell["forward_seconds"]) == len(cell["backward_seconds"]) == 3
        assert min(cell["forward_seconds"] + cell["backward_seconds"]) > 0
    assert result["machine"]["device"] == "cpu"
    written = json.loads(json.dumps(result | {"loaded": {}}))  # this process records no loaded code
    parse_as(ProgramResult, written)
    parse_as(OperatorFacts, written)
    assert result["cost_seconds"]["measured"] > sum(cell["forward_seconds"][0] for cell in result["cells"])


def test_a_backend_gives_what_the_written_out_attention_gives_with_the_same_mask_and_scale():
    spec = read_row(changed(attention="flash"))
    expected = row_module.AttentionPass(read_row(changed()), 16, CPU).forward()
    with forced_backend(spec):
        torch.testing.assert_close(row_module.AttentionPass(spec, 16, CPU).forward(), expected)


def test_a_backend_that_is_refused_is_a_cell_with_pytorchs_reason_and_the_row_goes_on():
    result = measured(changed(attention="cudnn"))
    assert [cell["status"] for cell in result["cells"]] == ["unsupported"] * 2
    assert result["cells"][0]["reason"].startswith("attention cudnn: No viable backend")
    assert result["cells"][0]["forward_seconds"] == []


def test_a_cell_that_runs_out_of_memory_is_a_result_and_the_row_goes_on(monkeypatch):
    attention_pass = row_module.AttentionPass

    def too_large(spec, context_length, device):
        if context_length == 8:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return attention_pass(spec, context_length, device)

    monkeypatch.setattr(row_module, "AttentionPass", too_large)
    first, second = measured(changed())["cells"]
    assert (first["status"], first["out_of_memory"]["requested_bytes"]) == ("out_of_memory", 2 * 2**30)
    assert second["status"] == "complete"


def test_the_peak_of_a_row_is_that_of_its_largest_cell_and_not_known_on_a_processor():
    assert largest_memory({"peak_allocated_bytes": 30}, {"peak_allocated_bytes": 20}) == {"peak_allocated_bytes": 30}
    assert largest_memory({}, {"peak_allocated_bytes": 20}) == {"peak_allocated_bytes": 20}
    assert largest_memory({"peak_allocated_bytes": None}, {"peak_allocated_bytes": None}) == {
        "peak_allocated_bytes": None
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed(compile="attention"), "compile attention: only attention runs here, so choose off or on"),
        (changed(compile="on", attention="flash"), "compile on with attention flash: a fused kernel is not compiled"),
        (changed(precision="fp8"), "precision is 'fp8'"),
        (changed(head_dim=0), "head_dim is 0"),
        (json.dumps(VALUES | {"context_lengths": []}), "context_lengths is 0"),
        (json.dumps(VALUES | {"more": 1}), "unknown keys ['more']"),
    ],
)
def test_what_no_machine_can_measure_is_refused_in_one_line(text, message):
    with pytest.raises(ValueError) as error:
        read_row(text)
    assert message in str(error.value) and "\n" not in str(error.value)


ATEN = torch.ops.aten
KERNELS = {  # what each backend launches on a GPU, called on tensors without data
    "flash": lambda heads: ATEN._scaled_dot_product_flash_attention(heads, heads, heads, 0.0, True),
    "efficient": lambda heads: ATEN._scaled_dot_product_efficient_attention(heads, heads, heads, None, True, 0.0, True),
    "cudnn": lambda heads: ATEN._scaled_dot_product_cudnn_attention(heads, heads, heads, None, True, 0.0, True),
    "math": lambda heads: fused_attention(heads, heads, heads, None),
}


@pytest.mark.parametrize("backend", KERNELS)
def test_the_flops_of_fused_attention_are_those_of_pytorchs_own_counter(backend):
    """Scores and values of one layer, every score counted, as `matmul_flops` has them for the written-out attention;
    the ideal leaves out what the mask leaves out."""
    shape = ModelShape(2, 16, 10, 24, 1, 3, 8)
    with FlopCounterMode(display=False) as counter:
        KERNELS[backend](torch.empty(2, 3, 16, 8, device="meta", dtype=torch.bfloat16))
    own = matmul_flops(shape)
    every = own["computing attention scores"] + own["final matmul"]
    assert counter.get_total_flops() == every
    assert causal_attention_flops(2, 16, 24) * 2 * 16 == every * (16 + 1)


@pytest.mark.parametrize("backend", ["flash", "efficient", "cudnn"])
def test_the_flops_of_a_fused_backward_pass_are_two_forward_passes_and_the_scores_once_more(backend):
    """As PyTorch's counter has them, and as the estimate of a run does."""
    heads = torch.empty(2, 3, 16, 8, device="meta", dtype=torch.bfloat16, requires_grad=True)
    with FlopCounterMode(display=False) as forward:
        output = KERNELS[backend](heads)[0]
    with FlopCounterMode(display=False) as backward:
        output.backward(torch.empty_like(output))
    own = matmul_flops(ModelShape(2, 16, 10, 24, 1, 3, 8))
    scores, values = own["computing attention scores"], own["final matmul"]
    assert forward.get_total_flops() == scores + values
    assert backward.get_total_flops() == BACKWARD_IN_FORWARDS * (scores + values) + scores
    assert (scores + values) * FUSED_FORWARDS == forward.get_total_flops() + backward.get_total_flops()


def test_single_calls_are_timed_for_as_long_as_it_is_asked_for_and_what_comes_before_them_is_not():
    calls, before = [], []

    def call() -> None:
        calls.append(len(before))
        time.sleep(0.002)

    def slow() -> None:
        before.append(1)
        time.sleep(0.004)

    seconds = call_seconds(call, 0.05, CPU, before=slow)
    assert 5 <= len(seconds) <= 25 and min(seconds) >= 0.002 and sorted(seconds)[len(seconds) // 2] < 0.004
    assert calls == list(range(1, len(before) + 1))  # each call has one before it


def test_a_row_has_single_calls_of_each_pass_if_they_are_asked_for():
    first, _ = measured(json.dumps(json.loads(changed()) | {"bench_s": 0.01}))["cells"]
    assert set(first["bench_seconds"]) == {"forward", "backward", "both"}
    assert all(len(times) >= 3 and min(times) > 0 for times in first["bench_seconds"].values())
    assert first["bench_method"] == "timeit.default_timer"
    assert measured(changed())["cells"][0]["bench_seconds"] == {}
