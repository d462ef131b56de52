"""Attention alone: what a run of it leaves, on the CPU, with functions of one's own that are right, wrong or broken."""

import sys
from functools import partial
from types import ModuleType

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from cs336_model import attention
from cs336_model.results import Cell
from tests.cs336_model.conftest import make_spec


def run_out(queries, keys, values, is_causal):
    if queries.shape[-2] == 16:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has /home/anna")
    return scaled_dot_product_attention(queries, keys, values, is_causal=is_causal)


FUNCTIONS = {
    "right": scaled_dot_product_attention,
    "unmasked": lambda queries, keys, values, is_causal: scaled_dot_product_attention(queries, keys, values),
    "infinite": lambda queries, keys, values, is_causal: queries / 0,
    "detached": lambda queries, keys, values, is_causal: queries * keys.detach() * values.detach(),
    "run_out": run_out,
}


def measure_cells(monkeypatch, **changes) -> list[Cell]:
    module = ModuleType("mine")
    vars(module).update(FUNCTIONS)
    monkeypatch.setitem(sys.modules, "mine", module)
    told = {"stage": "attention", "context_lengths": [4, 16], "head_dim": 8, "warmup_passes": 1, "measured_passes": 3}
    result = attention.measure(make_spec(mode=None, context_length=None, **told | changes), torch.device("cpu"))
    assert result.status == "complete" and [cell.context_length for cell in result.cells] == [4, 16]
    return result.cells


@pytest.mark.parametrize(
    ("name", "precision", "least", "most"),
    [
        ("eager", "fp32", 1e-8, 1e-5), ("math", "fp32", 1e-8, 1e-5), ("mine:unmasked", "fp32", 0.5, 10),
        ("mine:right", "bf16", 1e-4, 0.02), ("eager", "bf16-weights", 1e-4, 0.05),
    ],
)  # fmt: skip
def test_a_cell_has_every_pass_and_errors_against_fp64_are_those_of_rounding(monkeypatch, name, precision, least, most):
    for cell in measure_cells(monkeypatch, attention=name, precision=precision):
        assert (cell.status, len(cell.forward_seconds), len(cell.backward_seconds)) == ("complete", 3, 3)
        assert min(cell.forward_seconds + cell.backward_seconds) > 0
        assert cell.compile_seconds is cell.memory_before_backward_bytes is cell.peak_bytes is None
        assert least < cell.output_error < most and least < cell.gradient_error < most


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("mine:infinite", "non_finite", "the output of mine:infinite is not finite"),
        ("mine:detached", "failed", "the gradient of the keys of mine:detached is missing"),
        ("mine:absent", "failed", "mine has no attribute 'absent'"),
        ("cudnn", "unsupported", "attention cudnn: No viable backend"),
    ],
)
def test_a_cell_that_cannot_count_says_why(monkeypatch, name, status, reason):
    for cell in measure_cells(monkeypatch, attention=name):
        assert cell.status == status and reason in cell.reason


def test_a_length_that_does_not_fit_is_a_row_of_its_own_and_gives_nothing_private(monkeypatch):
    first, second = measure_cells(monkeypatch, attention="mine:run_out")
    assert (first.status, second.status) == ("complete", "out_of_memory")
    assert (second.out_of_memory.requested_bytes, second.out_of_memory.during) == (2 * 2**30, "context 16")
    assert "anna" not in str(second)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler imports what it has deprecated
def test_a_compiled_run_says_how_long_each_length_took_to_compile(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))  # inductor takes half a minute
    cells = measure_cells(monkeypatch, compile="on")
    assert all(cell.compile_seconds > max(cell.forward_seconds) and cell.output_error < 1e-5 for cell in cells)
