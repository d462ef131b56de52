"""A student's DDP, FSDP and sharded optimizer in two processes: right ones pass, a fault is told by its error."""

import json
import sys

import pytest

from cs336_model.program.adapters.checks import TOLERANCES
from tests.cs336_model.launched_ranks import ended, rank_results
from tests.cs336_model.specs import changed

CODE = "tests.cs336_model.own_ranks_code"


def of_ddp(make: str = "get_ddp", end: str = "after_backward") -> tuple[dict, dict]:
    return {"parallel": "own-ddp"}, {"get_ddp": f"{CODE}:{make}", "ddp_on_after_backward": f"{CODE}:{end}"}


def of_fsdp(make: str = "get_fsdp", gather: str = "gather_full_params") -> tuple[dict, dict]:
    adapters = {"get_fsdp": make, "fsdp_on_after_backward": "after_backward", "fsdp_gather_full_params": gather}
    return {"parallel": "own-fsdp"}, {name: f"{CODE}:{value}" for name, value in adapters.items()}


def of_optimizer(make: str = "get_sharded_optimizer") -> tuple[dict, dict]:
    return {"parallel": "naive", "optimizer": "own-sharded"}, {"get_sharded_optimizer": f"{CODE}:{make}"}


RIGHT = {
    "ddp": (*of_ddp(), "fp32"),
    "ddp in bf16": (*of_ddp(), "bf16"),
    "ddp with bf16 weights": (*of_ddp(), "bf16-weights"),
    "fsdp": (*of_fsdp(), "fp32"),
    "sharded optimizer": (*of_optimizer(), "fp32"),
}
WRONG = {
    "sums": (*of_ddp("PlainDdp", "sums"), "fp32"),
    "forgets one": (*of_ddp("PlainDdp", "forgets_one"), "fp32"),
    "reduces nothing": (*of_ddp("PlainDdp"), "fp32"),
    "unsynchronised": (*of_fsdp("get_unsynchronised_fsdp", "own_params"), "fp32"),
    "without broadcast": (*of_optimizer("WithoutBroadcast"), "fp32"),
}
FAILED = {"raises": (*of_ddp("PlainDdp", "raises"), "fp32")}
CASES = RIGHT | WRONG | FAILED


@pytest.fixture(scope="module")
def both_ranks(tmp_path_factory):
    """What both ranks say of a case, from one pair of processes."""
    results_by_case = {}

    def of_case(spec: dict, case: str) -> tuple[dict, dict]:
        if not results_by_case:
            spec = changed(spec, gpus=2, batch_size=4)
            texts = [
                json.dumps(changed(spec, **dimensions, precision=precision) | {"adapters": adapters})
                for dimensions, adapters, precision in CASES.values()
            ]
            results = rank_results(tmp_path_factory.mktemp("ranks"), "tests.cs336_model.adapters_ranks_program", texts)
            results_by_case.update(zip(CASES, results, strict=True))
        return results_by_case[case]

    return of_case


@pytest.mark.parametrize("case", RIGHT)
def test_what_pytorch_computes_passes_with_less_than_a_third_of_the_tolerance(both_ranks, spec_values, case):
    rank0, rank1 = both_ranks(spec_values, case)
    assert rank0 == rank1 and rank0["status"] == "right"
    assert all(check["error"] < check["tolerance"] / 3 for check in rank0["checks"]), rank0["checks"]
    assert {check["tolerance"] for check in rank0["checks"]} <= set(TOLERANCES.values())


@pytest.mark.parametrize(
    ("case", "quantity", "error"),
    [
        ("sums", "gradient of", 1.0),
        ("forgets one", "gradient of blocks.0.attention.key.weight", None),
        ("reduces nothing", "gradient of", None),
        ("unsynchronised", "parameter of", None),
        ("without broadcast", "parameter of", 1.0),
    ],
)
def test_each_fault_is_told_by_its_largest_error(both_ranks, spec_values, case, quantity, error):
    rank0, rank1 = both_ranks(spec_values, case)
    assert rank0 == rank1 and rank0["status"] == "wrong"
    wrong = {check["quantity"]: check["error"] for check in rank0["checks"] if check["verdict"] == "wrong"}
    (name,) = (name for name in wrong if name.startswith(quantity))
    assert wrong[name] == pytest.approx(error, rel=0.01) if error else wrong[name] > 0.1
    assert name in rank0["reason"] and "\n" not in rank0["reason"]


def test_code_that_raises_is_told_by_its_exception(both_ranks, spec_values):
    for rank in both_ranks(spec_values, "raises"):
        assert rank["status"] == "failed"
        assert rank["reason"].startswith(
            "own-ddp: raised NotImplementedError: gradients are not reduced yet (own_ranks"
        )


def test_code_that_hangs_ends_the_run_with_a_draft_of_its_result(tmp_path, spec_values):
    dimensions, adapters = of_ddp("PlainDdp", "hangs")
    spec = json.dumps(changed(spec_values, gpus=2, batch_size=4, **dimensions) | {"adapters": adapters})
    program = [sys.executable, "-m", "cs336_model.program", "cs336_model.program.benchmark", "--spec", spec]
    results = [tmp_path / f"{rank}.json" for rank in (0, 1)]
    status = ended(tmp_path, [[*program, "--time-limit-s", "40", "--output", str(path)] for path in results], 120)
    assert status != 0
    for path in results:
        record = json.loads(path.read_text())
        assert (record["status"], record["reason"]) == ("unfinished", "own-ddp: while it was checked")


def test_a_run_with_right_code_is_measured_and_its_checks_are_kept(tmp_path, spec_values):
    dimensions, adapters = of_fsdp()
    spec = json.dumps(changed(spec_values, gpus=2, batch_size=4, **dimensions) | {"adapters": adapters})
    program = [sys.executable, "-m", "cs336_model.program", "cs336_model.program.benchmark", "--spec", spec]
    results = [tmp_path / f"{rank}.json" for rank in (0, 1)]
    assert ended(tmp_path, [[*program, "--output", str(path)] for path in results], 120) == 0
    for path in results:
        record = json.loads(path.read_text())
        assert record["status"] == "complete" and record["step_no_sync_seconds"] == []
        assert {check["verdict"] for check in record["checks"]} == {"right"}
        assert record["parameters"] == 6800 and record["accuracy"]["logits_error"] < 1e-5
        assert record["accuracy"]["gradient_norm_error"] is None
