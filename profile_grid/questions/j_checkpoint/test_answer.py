"""(j): what a checkpointed step costs in time, what it spares in memory, and what fits by it alone."""

from dataclasses import replace

import pandas as pd
import pytest

from cs336_model.arithmetic.flops import ModelShape, forward_flops
from profile_grid.documents.documents import asked_of, documents
from tests.profile_grid.made_up import GEMM, Kernel, Made, forward_kernels, grid, merged, training_kernels
from tests.profile_grid.made_up_answers import answered, own_tables, summaries_of, told
from tests.profile_grid.test_answers import OOM, PROVENANCE, line_of

SMALL = forward_flops(ModelShape(4, 512, 10000, 768, 12, 12, 3072))
OWN = {"d_ff": 3072, "forward_flops": SMALL["forward"]}
GIB = 2**30
KERNELS = forward_kernels() + training_kernels("train_step")


def step(every: int = 0, ms: float = 100.0, gib: int = 40, **changes) -> Made:
    """A training step with one block in `every` checkpointed, which takes a fifth of its GPU time then."""
    busy = sum(kernel.time_us for kernel in KERNELS)
    again = Kernel("backward", "recomputation > block > norm", GEMM, "gemm", 12, busy / 4)
    run = Made(
        mode="train_step", kernels=(*KERNELS, again) if every else KERNELS, checkpoint=every, unprofiled_ms=ms,
        unprofiled_std_ms=ms / 100, peak_allocated_bytes=gib * GIB, others=OWN,
    )  # fmt: skip
    return replace(run, **changes)


def out_of_memory(run: Made) -> Made:
    status = {"timing_status": "out_of_memory", "capture_status": "out_of_memory"}
    return replace(run, kernels=(), others=run.others | OOM, **status)


BOTH = (step(), step(1, 130.0, 10))


def test_the_question_is_asked_where_runs_differ_in_checkpoints_and_nowhere_else():
    assert "j_checkpoint" not in asked_of(merged(grid())["runs"])
    assert "# (j) What does checkpointing trade?" in answered("j_checkpoint", list(BOTH))


def test_time_memory_and_recomputation_stand_beside_the_run_without_checkpoints():
    tables = summaries_of("j_checkpoint", *BOTH)
    (times,) = tables["checkpoint_times"].to_dict("records")
    assert times["speed_up"] == pytest.approx(100 / 130)
    taken = tables["checkpoint_memory"].set_index("checkpoint")
    assert taken.loc[1, ["peak_allocated_bytes", "base_peak_allocated_bytes"]].tolist() == [10 * GIB, 40 * GIB]
    assert taken["recomputed_share"].tolist() == pytest.approx([0.0, 0.2], rel=1e-5)
    assert taken.loc[1, "kept_bytes"] < 0.1 * taken.loc[0, "kept_bytes"] == 0.1 * taken.loc[1, "base_kept_bytes"]


@pytest.mark.parametrize(("every", "blocks"), [(1, 12), (2, 6), (5, 3)])
def test_the_ideal_is_the_flops_of_a_step_without_over_those_with_what_is_computed_again(every, blocks):
    (times,) = summaries_of("j_checkpoint", step(), step(every))["checkpoint_times"].to_dict("records")
    again = blocks / 12 * (SMALL["forward"] - SMALL["head"])
    assert times["ideal_by_flops"] == pytest.approx(3 * SMALL["forward"] / (3 * SMALL["forward"] + again))


def test_the_sentences_tell_time_memory_and_what_computes_again():
    text = told("j_checkpoint", list(BOTH))
    assert text.startswith(
        "With every block checkpointed, small at context 512 trains in 10.0 GiB instead of 40.0 GiB, for"
    )
    assert (
        "Time of a step, compared with no checkpoints: with every block checkpointed × 1.30 (FLOPs predict × 1.31)"
        in text
    )
    assert "Recomputation takes 20.0 % of the GPU time of a step." in text


def test_further_checkpoints_that_save_no_memory_are_named_with_what_they_cost():
    text = told("j_checkpoint", [step(), step(1, 130.0, 20), step(2, 115.0, 20)])
    assert (
        "More checkpoints save no memory in small at context 512 (20.0 GiB with 1 block in 2 checkpointed), but take"
        " 13.0 % more time with every block checkpointed." in text
    )
    assert "save no memory" not in told("j_checkpoint", [step(), step(1, 130.0, 15), step(2, 115.0, 20)])


def recorded(*runs: tuple[Made, int, int]) -> dict:
    """The merged tables of runs with the peak and the activations that the stage memory recorded of each, in GiB."""
    tables = merged([run for run, _, _ in runs])
    peaks = [run.leading | {"requested_peak_bytes": peak * GIB} for run, peak, _ in runs]
    kept = [run.leading | {"part": "block", "block": n, "bytes": kept * GIB // 2, "allocations": 1}
            for run, _, kept in runs for n in range(2)]  # fmt: skip
    return tables | {"memory_totals": pd.DataFrame(peaks), "memory_activations": pd.DataFrame(kept)}


def test_what_the_stage_memory_recorded_stands_beside_the_peak_of_the_timing():
    tables = recorded((BOTH[0], 36, 30), (BOTH[1], 9, 6))
    own = own_tables("j_checkpoint", tables)
    row = own["checkpoint_memory"].set_index("checkpoint").loc[1]
    names = ["peak_allocated_bytes", "recorded_peak_bytes", "recorded_kept_bytes", "base_recorded_kept_bytes"]
    assert (row[names] / GIB).tolist() == [10, 9, 6, 30]
    text = documents(own, tables["runs"], PROVENANCE, ["j_checkpoint"])["j_checkpoint"]
    line = line_of(text, "small", "512", "training step", "every block")
    assert [cell.strip() for cell in line.split("|")][8:11] == ["10.0 GiB", "9.0 GiB", "6.0 GiB"]


def test_on_a_processor_the_recorded_peak_stands_in_for_that_of_the_timing():
    plain, checkpointed = (replace(run, peak_allocated_bytes=None) for run in BOTH)
    tables = recorded((plain, 36, 30), (checkpointed, 9, 6))
    text = documents(own_tables("j_checkpoint", tables), tables["runs"], PROVENANCE, ["j_checkpoint"])["j_checkpoint"]
    assert "small at context 512 trains in 9.0 GiB instead of 36.0 GiB, for" in text
    assert "| peak |" not in text


def test_what_fits_by_checkpoints_alone_is_told_with_the_fewest_of_them_and_no_ratio_is_made_up():
    runs = [out_of_memory(step()), step(1, 130.0, 90), step(4, 110.0, 120)]
    text = told("j_checkpoint", runs)
    assert text.startswith(
        "Without checkpoints, small at context 512 runs out of memory; it fits with 1 block in 4 checkpointed."
    )
    assert "imes as long" not in text and "instead of" not in text
    document = answered("j_checkpoint", runs)
    assert line_of(document, "small", "512", "training step", "none", "OOM")
    assert line_of(document, "small", "512", "training step", "every block", "130.0 ± 1.3", "–", "–", "90.0 GiB")


def test_a_forward_pass_has_nothing_to_keep_and_is_left_out():
    assert summaries_of("j_checkpoint", Made(), Made(checkpoint=1))["checkpoint_memory"].empty
    assert told("j_checkpoint", [Made(), Made(checkpoint=1)]).startswith("Not answered: no two training runs differ")
