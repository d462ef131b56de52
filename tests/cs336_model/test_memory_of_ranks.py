"""The memory of two processes by component: equal to sums over their tensors, and less where they divide it."""

import json

import pytest

from profile_grid.stages.memory.history import CATEGORIES, categories_of, history_of, live_bytes
from profile_grid.stages.memory.usage_tables import (
    AFTER_OPTIMIZER,
    BEFORE_OPTIMIZER,
    INITIALISED,
    moments_table,
)
from tests.cs336_model.launched_ranks import rank_results
from tests.cs336_model.specs import changed

WAYS = {
    "naive": {"parallel": "naive"},
    "ddp": {"parallel": "ddp"},
    "fused": {"parallel": "naive", "optimizer": "fused"},
    "fsdp": {"parallel": "fsdp"},
}


@pytest.fixture(scope="module")
def both_ranks(tmp_path_factory):
    """(bytes by moment and category, most bytes by category, sums over tensors) of each rank, by way, from one pair of
    processes."""
    ranks_by_way = {}

    def of_way(spec: dict, way: str) -> list[tuple]:
        if not ranks_by_way:
            texts = [json.dumps(changed(spec, gpus=2, batch_size=4, **values)) for values in WAYS.values()]
            records = rank_results(tmp_path_factory.mktemp("ranks"), "tests.cs336_model.memory_ranks_program", texts)
            ranks_by_way.update(zip(WAYS, records, strict=True))
        return [_of_rank(rank) for rank in ranks_by_way[way]]

    return of_way


def _of_rank(rank: dict) -> tuple:
    history = history_of(rank["record"])
    live = live_bytes(history, categories_of(history))
    table = moments_table(history, live).set_index(["moment", "category"])
    return table["bytes"], dict(zip(map(str, CATEGORIES), live.max(axis=0).tolist(), strict=True)), rank["sums"]


@pytest.mark.parametrize("way", WAYS)
def test_components_are_the_sums_over_the_tensors_of_the_process(both_ranks, spec_values, way):
    for live, _, sums in both_ranks(spec_values, way):
        for moment in (BEFORE_OPTIMIZER, AFTER_OPTIMIZER):
            # What a thread of Gloo releases counts as live until its memory is used again: gradients that it reduced.
            unseen = live[moment, "gradients"] - sums["gradients"]
            assert 0 <= unseen <= 2 * sums["gradients"] and (way != "fsdp" or not unseen)  # of two earlier steps
            assert {name: live[moment, name] for name in sums} == sums | {"gradients": sums["gradients"] + unseen}
        assert live[INITIALISED, "parameters"] == sums["parameters"]
        assert live[INITIALISED, "gradients"] == 0


def test_fsdp_divides_everything(both_ranks, spec_values):
    all_sums = both_ranks(spec_values, "naive")[0][2]
    rank0, rank1 = (sums for _, _, sums in both_ranks(spec_values, "fsdp"))
    assert {name: rank0[name] + rank1[name] for name in all_sums} == all_sums


def test_buffers_of_communication_are_as_large_as_what_they_hold(both_ranks, spec_values):
    (live, _, sums), _ = both_ranks(spec_values, "ddp")
    # DDP makes its buckets again after its first backward pass; a thread of Gloo may release some of before, unseen.
    held = live[AFTER_OPTIMIZER, "communication"] / sums["gradients"]
    assert 0.99 <= held <= 3.01  # the steps made them three times at most
    (_, peak_bytes, sums), _ = both_ranks(spec_values, "fsdp")
    assert peak_bytes["communication"] >= sums["parameters"] / 4  # a block, and the root, are gathered
