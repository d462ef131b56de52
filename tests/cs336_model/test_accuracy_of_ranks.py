"""Two processes that share a batch against an eager fp64 run of the whole of it, in every way to reduce gradients."""

import json
from itertools import product

import pytest

from cs336_model.program.accuracy import TOO_LARGE
from cs336_model.program.variants.values import DDP, FSDP, NAIVE
from profile_grid.stages.timing.tables import explained_error
from tests.cs336_model.launched_ranks import rank_results
from tests.cs336_model.specs import changed

ERRORS = ("loss_error", "logits_error", "gradient_norm_error")
WAYS = (NAIVE, DDP, FSDP)
REDUCED = WAYS[:-1]  # by our code or its hook
PRECISIONS = ("fp32", "bf16", "bf16-weights")
FAULTS = ("summed", "not reduced", "one part", "no memory for fp64")
CASES = [
    *((way, precision, None) for way, precision in product(WAYS, PRECISIONS)),
    *((way, "fp32", "summed") for way in REDUCED),
    *((NAIVE, "fp32", fault) for fault in FAULTS[1:]),
]  # each rank goes on with the next, whatever happened in one


@pytest.fixture(scope="module")
def both_ranks(tmp_path_factory):
    """What both ranks found of every case, in one pair of processes."""
    errors_by_case = {}

    def errors(spec: dict, *case) -> tuple[dict, dict]:
        if not errors_by_case:
            folder = tmp_path_factory.mktemp("ranks")
            specs = [[json.dumps(changed(spec, gpus=2, parallel=way, precision=name)), it] for way, name, it in CASES]
            rank_errors = rank_results(folder, "tests.cs336_model.accuracy_program", specs)
            errors_by_case.update(zip(CASES, rank_errors, strict=True))
        return errors_by_case[case]

    return errors


@pytest.fixture
def values(spec_values) -> dict:
    return changed(spec_values, batch_size=4)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("way", WAYS)
def test_two_ranks_compute_the_whole_batch_as_far_as_their_precision_goes(both_ranks, values, way, precision):
    rank0, rank1 = both_ranks(values, way, precision, None)
    assert rank0 == rank1 and rank0["reason"] is None
    assert all(0 < rank0[name] < explained_error(precision) for name in ERRORS)


@pytest.mark.parametrize("way", REDUCED)
def test_gradients_that_are_summed_are_off_by_more_than_any_precision_explains(both_ranks, values, way):
    rank0, rank1 = both_ranks(values, way, "fp32", "summed")
    assert rank0 == rank1
    assert rank0["gradient_norm_error"] == pytest.approx(1, rel=1e-4)  # two ranks: twice the mean
    assert rank0["loss_error"] < explained_error("fp32") and rank0["logits_error"] < explained_error("fp32")


def test_gradients_that_are_not_reduced_are_told(both_ranks, values):
    rank0, rank1 = both_ranks(values, NAIVE, "fp32", "not reduced")
    assert rank0 == rank1 and rank0["gradient_norm_error"] > explained_error("bf16")


def test_ranks_that_take_the_same_part_of_the_batch_are_told(both_ranks, values):
    rank0, rank1 = both_ranks(values, NAIVE, "fp32", "one part")
    assert rank0 == rank1 and min(rank0[name] for name in ERRORS) > explained_error("fp32")


def test_where_one_rank_runs_out_of_memory_all_turn_back_and_none_waits(both_ranks, values):
    nothing = {"reason": TOO_LARGE} | dict.fromkeys(ERRORS)
    assert both_ranks(values, NAIVE, "fp32", "no memory for fp64") == (nothing, nothing)
