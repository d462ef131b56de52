"""A student's code in a run: what is right is measured, and each kind of fault is a result with its reason."""

import json
import math
import subprocess
import sys

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from cs336_model.program.adapters.attention import checks_of_attention, checks_of_shape
from cs336_model.program.adapters.names import ADAPTERS, NEEDED, adapters_of_run, missing_adapter, needed_adapters
from cs336_model.program.operator.row import row_result
from cs336_model.program.operator.spec import read_row
from cs336_model.program.process import Progress
from cs336_model.program.spec import read_spec
from cs336_model.program.without_times import Failed, Wrong
from tests.cs336_model.specs import changed

CPU = torch.device("cpu")
(NAME,) = NEEDED["attention"]["own-pytorch"]


def adapters(function: str) -> dict[str, str]:
    return {NAME: f"tests.cs336_model.own_code:{function}"}


def checked(function: str, precision: str = "fp32") -> list[dict]:
    return checks_of_attention("own-pytorch", adapters(function), precision, [32], 16, CPU)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_right_attention_passes_every_check_in_fp32_and_in_the_precision_of_the_run(precision):
    checks = checked("right", precision)
    assert {check["verdict"] for check in checks} == {"right"}
    assert {check["precision"] for check in checks} == {"fp32", precision}
    assert len(checks) == len({"fp32", precision}) * 4 * 2 * 4  # lengths 16, 32, 64, 256; causal or not; quantities
    assert checks[0]["case"] == "length 16, width 16, causal"


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("without_mask", "16 of 32 checks differ from the reference; the largest: output by "),
        ("wrong_scale", "32 of 32 checks differ from the reference; the largest: output by "),
        ("wrong_gradient_of_queries", "8 of 32 checks differ from the reference; the largest: gradient of queries by "),
        ("with_nan", "8 of 32 checks differ from the reference; the largest: gradient of values is not finite (length"),
    ],
)
def test_a_wrong_attention_is_told_by_its_largest_error_in_each_quantity(fault, says):
    with pytest.raises(Wrong) as error:
        checked(fault)
    assert str(error.value).startswith(f"own-pytorch: {says}") and "\n" not in str(error.value)
    wrong = {check["quantity"] for check in error.value.checks if check["verdict"] == "wrong"}
    assert len(error.value.checks) == 32 and all(quantity in str(error.value) for quantity in wrong)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("raising", "own-pytorch: raised NotImplementedError: the backward pass is not written yet (own_code.py, line"),
        ("without_gradient", "own-pytorch: raised ValueError: gradient of values is missing"),
        ("not_written", "own-pytorch: raised NotImplementedError (own_code.py, line"),
        ("get_what_is_not_there", "'get_what_is_not_there'; check the spelling"),
    ],
)
def test_code_that_raises_is_told_by_its_exception(fault, says):
    with pytest.raises(Failed) as error:
        checked(fault)
    assert says in str(error.value) and "\n" not in str(error.value)


def written_out(queries, keys, values, is_causal):
    scores = queries @ keys.mT * queries.shape[-1] ** -0.5
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(dim=-1) @ values


def by_backend(backend):
    def attention(*heads_and_causal):
        *heads, is_causal = heads_and_causal
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(*(head[None] for head in heads), is_causal=is_causal)[0]

    return attention


PYTORCHS = {"written out": written_out} | {
    name: by_backend(backend) for name, backend in (("math", SDPBackend.MATH), ("flash", SDPBackend.FLASH_ATTENTION))
}


@pytest.mark.parametrize("name", PYTORCHS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("width", [16, 128])
def test_what_pytorch_computes_is_within_six_tenths_of_the_tolerance(name, precision, width):
    attention = PYTORCHS[name]
    for causal in (True, False):
        for check in checks_of_shape("own-pytorch", attention, precision, (2, 256, width), causal, CPU):
            assert 0 < check.error < 0.6 * check.tolerance, check


def test_an_error_of_tf32_in_fp32_is_named_and_one_of_bf16_is_wrong():
    def rounded(bits):
        def attention(queries, keys, values, is_causal):
            factor = 1 + 2.0**-bits * torch.sign(torch.randn(queries.shape, generator=torch.Generator().manual_seed(1)))
            return written_out(queries * factor, keys, values, is_causal)

        return attention

    verdicts = {
        bits: {check.verdict for check in checks_of_shape("own-triton", rounded(bits), "fp32", (2, 64, 16), True, CPU)}
        for bits in (11, 5)
    }
    assert verdicts[11] == {"right as tf32"} and "wrong" in verdicts[5]


ROW = {
    "run": "attention_d16", "adapters": {}, "dimensions": {
        "precision": "fp32", "batch_size": 2, "compile": "off", "attention": "own-pytorch", "head_dim": 16,
    }, "context_lengths": [16, 32], "warmup_passes": 0, "measured_passes": 2, "bench_s": 0, "seed": 0, "device": "cpu",
}  # fmt: skip


def measured_row(function: str, tmp_path, **changes) -> dict:
    spec = read_row(json.dumps(ROW | {"adapters": adapters(function)} | changes))
    return row_result(spec, Progress(), tmp_path / "row.json", 600.0)


def test_a_right_attention_alone_is_timed_at_every_length(tmp_path):
    result = measured_row("right", tmp_path)
    assert [(cell["status"], len(cell["forward_seconds"])) for cell in result["cells"]] == [("complete", 2)] * 2
    assert len(result["checks"]) == 32 and result["cost_seconds"]["checks"] > 0


def test_a_wrong_attention_alone_is_not_timed_and_each_cell_says_why(tmp_path):
    result = measured_row("wrong_scale", tmp_path)
    assert [cell["status"] for cell in result["cells"]] == ["wrong"] * 2
    assert result["cells"][1]["reason"].startswith("own-pytorch: 32 of 32 checks differ")
    assert result["cells"][0]["forward_seconds"] == [] and result["cost_seconds"]["measured"] == 0
    assert {check["verdict"] for check in result["checks"]} == {"wrong"}


def test_an_attention_with_nan_at_a_length_that_is_not_checked_is_wrong_there(tmp_path, monkeypatch):
    monkeypatch.setattr("cs336_model.program.adapters.attention.MAX_LENGTH", 256)
    result = measured_row("with_nan_where_long", tmp_path, context_lengths=[16, 512])
    assert [cell["status"] for cell in result["cells"]] == ["complete", "wrong"]
    assert result["cells"][1]["reason"] == "own-pytorch: the gradient of the values is not finite (length 512)"
    assert result["cells"][1]["forward_seconds"] == []


@pytest.mark.parametrize(
    ("function", "status"), [("right", "complete"), ("without_mask", "wrong"), ("raising", "failed")]
)
def test_a_model_with_a_students_attention_is_measured_if_that_is_right(run_benchmark, function, status):
    result = run_benchmark(attention="own-pytorch", context_length=16, adapters=adapters(function))
    assert result["status"] == status
    assert len(result["step_seconds"]) == (2 if status == "complete" else 0)
    assert (result["reason"] is None) == (status == "complete")
    if status == "complete":
        assert result["accuracy"]["logits_error"] < 1e-5 and result["accuracy"]["gradient_norm_error"] < 1e-5
        assert "tests.cs336_model.own_code:right" in read_spec(json.dumps(result["spec"])).targets


@pytest.mark.parametrize("profiler", ["none", "torch", "memory"])
@pytest.mark.parametrize(
    ("function", "status", "says"),
    [
        ("raising_forward", "failed", "raised NotImplementedError: no forward pass (own_code.py, line"),
        ("raising", "failed", "raised NotImplementedError: the backward pass is not written yet (own_code.py, line"),
        ("with_nan", "wrong", "the loss of step 1 "),
    ],
)
def test_what_a_students_attention_does_wrong_only_in_the_steps_is_a_result(
    run_benchmark, monkeypatch, tmp_path, profiler, function, status, says
):
    monkeypatch.setattr("cs336_model.program.benchmark.checks_of_adapters", lambda *_: [])  # it passed them
    options = () if profiler == "none" else ("--profiler", profiler, "--capture", str(tmp_path / "capture"))
    result = run_benchmark(*options, attention="own-pytorch", context_length=16, adapters=adapters(function))
    assert (result["status"], result["step_seconds"]) == (status, [])
    assert result["reason"].startswith(f"own-pytorch: {says}") and "\n" not in result["reason"]
    if status == "failed":
        assert result["reason"].endswith(f"during warmup step 0: {'backward' if function == 'raising' else 'forward'}")


def test_an_attention_alone_that_raises_at_a_length_that_is_not_checked_is_failed_there(tmp_path, monkeypatch):
    monkeypatch.setattr("cs336_model.program.operator.row.checks_of_attention", lambda *_: [])
    result = measured_row("raising_later", tmp_path)
    assert [cell["status"] for cell in result["cells"]] == ["failed", "failed"]
    assert "raised RuntimeError: not so often (own_code.py, line" in result["cells"][0]["reason"]
    assert result["cells"][1]["reason"].endswith("with length 32")


@pytest.mark.parametrize("precision", ["bf16", "fp16", "bf16-weights"])
def test_a_students_attention_gets_the_type_that_autocast_would_give_it(run_benchmark, precision):
    result = run_benchmark(
        attention="own-pytorch", precision=precision, context_length=16, adapters=adapters("right"), mode="forward"
    )
    assert result["status"] == "complete" and result["accuracy"]["logits_error"] < 2**-6


def test_only_the_adapters_that_a_run_needs_are_in_its_specification():
    declared = {name: f"tests.adapters:{name}" for name in ADAPTERS}
    dimensions = {"attention": "own-triton", "precision": "fp32"}
    assert list(needed_adapters(dimensions)) == [("attention", "own-triton", ADAPTERS[1])]
    assert adapters_of_run(declared, dimensions) == {ADAPTERS[1]: f"tests.adapters:{ADAPTERS[1]}"}
    assert adapters_of_run(declared, {"attention": "flash"}) == {}
    assert missing_adapter(declared, dimensions) is None
    assert missing_adapter({}, dimensions).startswith(f"attention own-triton needs program.adapters.{ADAPTERS[1]}: ")


def test_a_specification_without_the_adapter_that_it_needs_is_refused(spec_values):
    with pytest.raises(ValueError, match=f"attention own-pytorch needs program.adapters.{NAME}"):
        read_spec(json.dumps(changed(spec_values, attention="own-pytorch")))
    with pytest.raises(ValueError, match="adapters of the specification: unknown keys"):
        read_spec(json.dumps(changed(spec_values, adapters={"get_everything": "a:b"})))


HANGS = """
import sys, time
from cs336_model.program.process import exit_after, print_stacks_before
print_stacks_before(60.0, 0.0)
with exit_after(60.0):
    pass
print("went on", flush=True)
with exit_after(0.2):
    time.sleep(30)
"""


def test_a_check_that_hangs_ends_the_process_with_its_stacks_and_one_that_ends_does_not():
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout) == (1, "went on\n")
    assert done.stderr.startswith("Timeout (0:00:00")
