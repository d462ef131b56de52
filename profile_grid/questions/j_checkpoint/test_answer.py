"""(j): what a checkpointed step costs in time, what it spares in memory, and what fits by it alone."""

from dataclasses import replace

import pandas as pd
import pytest

from cs336_model.arithmetic.flops import ModelShape, forward_flops
from profile_grid.documents.documents import document_names, documents
from tests.profile_grid.made_up import GEMM, Kernel, Made, forward_kernels, grid, merged, training_kernels
from tests.profile_grid.made_up_answers import answered, own_tables, summaries_of, told
from tests.profile_grid.test_answers import OOM, PROVENANCE, line_of

SMALL = forward_flops(ModelShape(4, 512, 10000, 768, 12, 12, 3072))
OWN = {"d_ff": 3072, "forward_flops": SMALL["forward"]}
GIB = 2**30
KERNELS = forward_kernels() + training_kernels("train_step")


def step(checkpoint: str = "0", ms: float = 100.0, gib: int = 40, **changes) -> Made:
    """A run of training steps with this value of `checkpoint`; unless it is 0, a fifth of the GPU time recomputes."""
    busy = sum(kernel.time_us for kernel in KERNELS)
    again = Kernel("backward", "recomputation > block > norm", GEMM, "gemm", 12, busy / 4)  # a fifth of the new sum
    run = Made(
        mode="train_step", kernels=KERNELS if checkpoint == "0" else (*KERNELS, again), checkpoint=checkpoint,
        unprofiled_ms=ms, unprofiled_std_ms=ms / 100, peak_allocated_bytes=gib * GIB, others=OWN,
    )  # fmt: skip
    return replace(run, **changes)


def out_of_memory(run: Made) -> Made:
    status = {"timing_status": "out_of_memory", "capture_status": "out_of_memory"}
    return replace(run, kernels=(), others=run.others | OOM, **status)


BOTH = (step(), step("1", 130.0, 10))


def test_the_question_is_asked_where_runs_differ_in_checkpoints_and_nowhere_else():
    assert "j_checkpoint" not in document_names(merged(grid())["runs"])
    assert "# (j) What does checkpointing save, and what does it cost?" in answered("j_checkpoint", list(BOTH))


def test_time_memory_and_recomputation_stand_beside_the_run_without_checkpoints():
    tables = summaries_of("j_checkpoint", *BOTH)
    (times,) = tables["checkpoint_times"].to_dict("records")
    assert times["speed_up"] == pytest.approx(100 / 130)
    taken = tables["checkpoint_memory"].set_index("checkpoint")
    assert taken.loc["1", ["peak_allocated_bytes", "base_peak_allocated_bytes"]].tolist() == [10 * GIB, 40 * GIB]
    assert taken["recomputed_share"].tolist() == pytest.approx([0.0, 0.2], rel=1e-5)


@pytest.mark.parametrize(("checkpoint", "groups"), [("1", 12), ("2", 6), ("5", 3), ("12", 1)])
def test_the_ideal_is_the_flops_of_a_step_without_over_those_with_what_is_computed_again(checkpoint, groups):
    """All blocks are computed again, each group without its last product, a third of a feed-forward layer."""
    (times,) = summaries_of("j_checkpoint", step(), step(checkpoint))["checkpoint_times"].to_dict("records")
    again = SMALL["forward"] - SMALL["head"] - groups / 12 * SMALL["feed-forward"] / 3
    assert times["ideal_by_flops"] == pytest.approx(3 * SMALL["forward"] / (3 * SMALL["forward"] + again))


def test_the_sentences_tell_time_memory_and_what_computes_again():
    text = told("j_checkpoint", list(BOTH))
    assert text.startswith(
        "With checkpoints of 1 block, small at context 512 trains in 10.0 GiB instead of 40.0 GiB, for"
    )
    assert "With checkpoints, a step takes 1.30 times as long as without; the FLOPs predict 1." in text
    assert "Recomputation takes 20.0 % of the GPU time of a step." in text


def test_the_lowest_peak_is_told():
    peaks = {"0": 40, "16": 30, "8-2": 25, "1": 21, "2": 20, "4": 22, "8": 26}
    text = told("j_checkpoint", [step(value, 100.0, gib) for value, gib in peaks.items()])
    assert "The peak is lowest with checkpoints of 2 blocks: 20.0 GiB." in text
    fewer = told("j_checkpoint", [step(value, 100.0, gib) for value, gib in peaks.items() if value not in ("2", "4")])
    assert "The peak is lowest with checkpoints of 1 block: 21.0 GiB" in fewer


def test_each_configuration_that_runs_out_of_memory_has_the_values_with_which_it_fits():
    runs = [step(value, precision=precision) for precision in ("fp32", "bf16") for value in ("0", "1", "4")]
    fitting = [out_of_memory(run) if run.checkpoint == "0" else run for run in runs]
    text = "runs out of memory; it fits with checkpoints of 1"
    assert told("j_checkpoint", fitting).count(f"{text} and 4 blocks.") == 2
    fewer = [out_of_memory(run) if run.checkpoint == "4" and run.precision == "bf16" else run for run in fitting]
    assert f"Without checkpoints, small at context 512 in bf16 {text} block." in told("j_checkpoint", fewer)
    assert f"Without checkpoints, small at context 512 {text} and 4 blocks." in told("j_checkpoint", fewer)
    four = [step(value) for value in ("1", "2", "4", "8")]
    tried = told("j_checkpoint", [out_of_memory(step()), out_of_memory(four[3]), *four[:3]])
    assert "runs out of memory; it fits with 3 of 4 sizes of checkpoints that were tried." in tried


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
    row = own["checkpoint_memory"].set_index("checkpoint").loc["1"]
    columns = ["peak_allocated_bytes", "recorded_peak_bytes", "recorded_kept_bytes", "base_recorded_kept_bytes"]
    assert (row[columns] / GIB).tolist() == [10, 9, 6, 30]
    text = documents(own, tables["runs"], PROVENANCE, ["j_checkpoint"])["j_checkpoint"]
    line = line_of(text, "small", "512", "training step", "1 block")
    cells = [cell.strip() for cell in line.split("|")]
    assert cells[8:11] == ["10.0 GiB", "9.0 GiB", "6.0 GiB"]


def test_on_a_processor_the_recorded_peak_stands_in_for_that_of_the_timing():
    plain, checkpointed = (replace(run, peak_allocated_bytes=None) for run in BOTH)
    tables = recorded((plain, 36, 30), (checkpointed, 9, 6))
    text = documents(own_tables("j_checkpoint", tables), tables["runs"], PROVENANCE, ["j_checkpoint"])["j_checkpoint"]
    assert "small at context 512 trains in 9.0 GiB instead of 36.0 GiB, for" in text
    assert "| peak |" not in text


def test_what_fits_by_checkpoints_alone_is_told_and_no_ratio_is_made_up():
    runs = [out_of_memory(step()), step("1", 130.0, 90), step("4", 110.0, 120)]
    text = told("j_checkpoint", runs)
    assert text.startswith(
        "Without checkpoints, small at context 512 runs out of memory; it fits with checkpoints of 1 and 4 blocks."
    )
    assert "imes as long" not in text and "instead of" not in text
    document = answered("j_checkpoint", runs)
    assert line_of(document, "small", "512", "training step", "none", "OOM")
    assert line_of(document, "small", "512", "training step", "1 block", "130.0 ± 1.3", "–", "–", "90.0 GiB")


def test_a_configuration_that_runs_out_of_memory_in_two_modes_is_told_once_with_what_fits_in_both():
    shorter = {"mode": "forward_backward", "kernels": forward_kernels() + training_kernels("forward_backward")}
    both = [out_of_memory(step(**shorter)), step("1", **shorter), out_of_memory(step("4", **shorter)),
            out_of_memory(step()), step("1"), step("4")]  # fmt: skip
    text = told("j_checkpoint", [*both, out_of_memory(step(precision="bf16")), step("4", precision="bf16")])
    assert (
        "Without checkpoints, small at context 512 runs out of memory in forward + backward and the training step; it"
        " fits with checkpoints of 1 block." in text
    )
    assert (
        "Without checkpoints, small at context 512 in bf16 runs out of memory in the training step; it fits with"
        " checkpoints of 4 blocks." in text
    )


def test_a_forward_pass_has_nothing_to_keep_and_is_left_out():
    assert summaries_of("j_checkpoint", Made(), Made(checkpoint="1"))["checkpoint_memory"].empty
    assert told("j_checkpoint", [Made(), Made(checkpoint="1")]).startswith("Not answered: no two training runs differ")
