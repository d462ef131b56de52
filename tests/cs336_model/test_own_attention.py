"""An attention function of the user, measured alone: its error against fp64, and what it does wrong."""

import json

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from cs336_model.program.operator.accuracy import attention_errors, exact_attention
from cs336_model.program.operator.row import row_result
from cs336_model.program.operator.spec import read_row
from cs336_model.program.process import Progress
from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes.job import Job
from profile_grid.stages.operator.measure import measure
from tests.cs336_model.test_operator import changed

exact = scaled_dot_product_attention


def without_mask(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
    return scaled_dot_product_attention(q, k, v)


def wrong_in_the_last_row(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
    output = scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    return torch.cat((output[..., :-1, :], 2 * output[..., -1:, :]), dim=-2)


def raising(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
    raise NotImplementedError("not written yet")


def raising_at_16(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
    return raising(q, k, v, is_causal) if q.shape[-2] == 16 else exact(q, k, v, is_causal=is_causal)


def of_another_shape(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
    return exact(q, k, v, is_causal=is_causal).flatten()


def without_a_gradient(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
    return exact(q, k.detach(), v, is_causal=is_causal)


def not_finite(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
    return exact(q, k, v, is_causal=is_causal) / 0


def cells_of(attention: str, **dimensions) -> list[dict]:
    """The cells of a row with an attention; one without a colon is a function of this module."""
    return row_result(read_row(changed(attention=attention, **dimensions)), Progress())["cells"]


def own(name: str) -> str:
    return f"{__name__}:{name}"


@pytest.mark.parametrize("attention", [own("exact"), "eager", "math", "flash"])
@pytest.mark.parametrize(("precision", "roundoff"), [("fp32", 2**-24), ("bf16", 2**-8)])
def test_errors_of_right_attentions_are_those_of_rounding(attention, precision, roundoff):
    for cell in cells_of(attention, precision=precision):
        assert cell["status"] == "complete" and len(cell["forward_seconds"]) == 3
        assert 0 < cell["output_error"] < 8 * roundoff + 144 * 2**-24
        assert 0 < cell["gradient_error"] < 16 * roundoff + 144 * 2**-24


@pytest.mark.parametrize("name", ["without_mask", "wrong_in_the_last_row"])
def test_the_error_of_a_wrong_attention_is_large_even_if_one_row_is_wrong(name):
    for cell in cells_of(own(name), precision="bf16"):
        assert cell["status"] == "complete" and cell["output_error"] > 0.5 and cell["gradient_error"] > 0.5


@pytest.mark.parametrize(
    ("attention", "reason"),
    [
        (own("raising"), "raised NotImplementedError: not written yet (test_own_attention.py, line "),
        (own("of_another_shape"), "raised RuntimeError: Mismatch in shape: grad_output[0] has a shape of torch.Size("),
        (own("without_a_gradient"), "the gradient of the keys is missing, at length 8"),
        (own("not_finite"), "the output is not finite, at length 8"),
        (own("absent"), f"{own('absent')!r}: "),
        ("no_such_module:flash", "'no_such_module:flash': no module 'no_such_module'"),
    ],
)
def test_a_function_that_cannot_be_measured_is_failed_with_one_line(attention, reason):
    cells = cells_of(attention)
    assert [cell["status"] for cell in cells] == ["failed"] * 2
    assert cells[0]["reason"].startswith(f"{attention}: {reason}") and "\n" not in cells[0]["reason"]
    assert (cells[0]["forward_seconds"], cells[0]["output_error"]) == ([], None)


def test_a_function_that_fails_at_one_length_is_measured_at_the_others():
    first, second = cells_of(own("raising_at_16"))
    assert (first["status"], second["status"]) == ("complete", "failed")
    assert second["reason"].endswith("at length 16")


def test_a_function_that_leaves_the_gpu_unusable_is_failed_at_all_later_lengths(monkeypatch):
    monkeypatch.setattr("cs336_model.program.operator.row.is_lost", lambda device: True)
    cells = cells_of(own("raising"))
    assert [(cell["context_length"], cell["status"]) for cell in cells] == [(8, "failed"), (16, "failed")]
    assert cells[1]["reason"].endswith("at length 8")


def test_attention_in_fp64_is_that_of_pytorch_however_many_rows_are_computed_at_once(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    *inputs, upstream = (torch.randn(2, 1, 10, 4, generator=generator, dtype=torch.float64) for _ in range(4))
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    output = scaled_dot_product_attention(*leaves, is_causal=True)
    output.backward(upstream)
    expected = [output.detach(), *(leaf.grad for leaf in leaves)]
    for elements in (2**24, 60):  # all rows; three rows
        monkeypatch.setattr("cs336_model.program.operator.accuracy.BLOCK_ELEMENTS", elements)
        for found, right in zip(exact_attention(*inputs, upstream)[0], expected, strict=True):
            torch.testing.assert_close(found, right)
        assert max(attention_errors(inputs, upstream, expected).values()) < 1e-14


def test_the_file_of_a_function_is_recorded_by_the_process_that_measures_it(tmp_path):
    program = json.loads(changed(attention=own("exact"))) | {"context_lengths": [8]}
    job = Job({"program": program, "environment": []}, tmp_path, tmp_path, tmp_path / "log", 120.0, Leases())
    result = measure(job)
    assert [cell["status"] for cell in result["facts"]["cells"]] == ["complete"]
    assert __name__ in result["program"]["loaded"]["modules"]
