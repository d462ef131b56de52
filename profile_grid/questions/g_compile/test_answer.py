"""(g): speed-ups of compiled runs, their kernels before and after, and when compiling has paid."""

from dataclasses import replace

import pytest

from cs336_model.arithmetic.flops import parameter_count
from profile_grid.documents.documents import document_names
from profile_grid.tables.ideal import ideal_times, shape_of_run
from tests.profile_grid.made_up import GEMM, MUL, Kernel, Made, forward_kernels, grid, merged
from tests.profile_grid.made_up_answers import answered, summaries_of, told
from tests.profile_grid.test_answers import line_of

TRITON = "triton_per_fused_div_exp_masked_fill_mul_sub_2"


def compiled(run: Made, times: float = 2.0, value: str = "on") -> Made:
    """The run compiled: this many times as fast, with all but its matrix multiplies in one fused kernel of 1 ms."""
    gemms = tuple(kernel for kernel in run.kernels if kernel.kernel_class == "gemm")
    fused = Kernel("forward", "", TRITON, "triton-fused", 10, 1000.0)  # phase, range, name, class, launches, µs
    ms = run.unprofiled_ms / times
    return replace(run, compile=value, kernels=(*gemms, fused), unprofiled_ms=ms, compile_s=20.0)


def both(times: float = 2.0) -> list[Made]:
    return [run for plain in grid() for run in (plain, compiled(plain, times))]


def test_the_question_is_asked_where_runs_differ_in_compilation_and_nowhere_else():
    assert "g_compile" not in document_names(merged(grid())["runs"])
    assert "# (g) What does compilation gain" in answered("g_compile", both())


def test_kernels_stand_beside_those_of_the_run_not_compiled_and_none_is_lost():
    plain = Made(kernels=forward_kernels())
    table = summaries_of("g_compile", plain, compiled(plain))["compile_kernels"].set_index("class")
    assert table.loc["gemm", ["gpu_time_ms", "base_gpu_time_ms"]].tolist() == [8.0, 8.0]
    assert table.loc["triton-fused", ["gpu_time_ms", "base_gpu_time_ms"]].tolist() == [1.0, 0.0]
    assert table.loc["softmax", ["gpu_time_ms", "base_gpu_time_ms"]].tolist() == [0.0, 0.9]
    assert table["invocations"].sum() == 94 and table["base_invocations"].sum() == 145


def test_compiling_has_paid_when_its_seconds_are_gained_back_and_never_without_a_gain():
    plain = Made(unprofiled_ms=10.0)
    faster, slower = compiled(plain, 2.0), compiled(plain, 0.5, "attention")
    cost = summaries_of("g_compile", plain, faster, slower)["compile_cost"].set_index("compile")
    assert cost.loc["on", ["compile_s", "gained_ms", "steps_to_pay"]].tolist() == pytest.approx([20.0, 5.0, 4000.0])
    assert cost["steps_to_pay"].isna().tolist() == [False, True]
    text = told("g_compile", [plain, faster, slower])
    assert (
        "Compiling takes 20.0 s with an empty cache; in runs that are clearly faster, 4,000 steps make up for it."
        in text
    )
    assert "Compiled (only attention): slower in the only run (× 0.500)." in text


def test_the_sentences_say_what_is_left_of_the_kernels_and_what_took_their_place():
    plain = Made(kernels=forward_kernels())
    text = told("g_compile", [plain, compiled(plain)])
    assert text.startswith(
        "Compiled (entire model), the forward pass of small at context 512 is 2.00 times as fast as not compiled."
    )
    launched = "the forward pass launches 64.8 % as many kernels as not compiled and takes 91.8 % as much GPU time."
    assert f"Compiled (entire model), {launched}" in text


SCORES, NORM = "computing attention scores", "norm"
MULTIPLIED = [Kernel("forward", f"attention > {part}", GEMM, "gemm", 2, 1000.0) for part in (SCORES, "final matmul")]
EAGER = Made(kernels=(Kernel("forward", NORM, MUL, "elementwise", 4, 300.0), *MULTIPLIED))
FUSED = compiled(replace(EAGER, kernels=()))
PARTS = (
    Kernel("forward", SCORES, GEMM, "gemm", 2, 900.0),
    Kernel("forward", "final matmul", GEMM, "gemm", 2, 800.0),
    Kernel("forward", f"{SCORES} + {NORM}", TRITON, "triton-fused", 1, 250.0),
    Kernel("forward", "", TRITON, "triton-fused", 1, 50.0),
)


def test_sets_of_parts_stand_beside_the_parts_not_compiled_and_add_up_on_either_side():
    table = summaries_of("g_compile", EAGER, replace(FUSED, kernels=PARTS))["compile_parts"].set_index("parts")
    sides = ["gpu_time_ms", "base_gpu_time_ms", "base_others_ms"]
    assert table.loc[f"{SCORES} + {NORM}", sides].tolist() == pytest.approx([0.25, 0.0, 0.3])
    assert table.loc[SCORES, [*sides, "matmuls", "base_matmuls"]].tolist() == pytest.approx([0.9, 1.0, 0.0, 2, 2])
    assert table.loc[NORM, sides].tolist() == pytest.approx([0.0, 0.3, 0.3])
    assert table[["gpu_time_ms", "base_gpu_time_ms"]].sum().tolist() == pytest.approx([2.0, 2.3])
    assert "(no inner range)" in table.index and table["share"].sum() == pytest.approx(1.0)


def test_what_is_fused_and_that_no_matrix_multiply_is_lost_is_told():
    text = told("g_compile", [EAGER, replace(FUSED, kernels=PARTS)])
    assert "several parts of the model at once take 12.5 % of forward." in text
    assert "matrix multiplies" not in text
    lost = told("g_compile", [EAGER, replace(FUSED, kernels=PARTS[1:])])
    assert f"The number of matrix multiplies differs when compiled: **{SCORES}** in small" in lost
    assert "forward (2 before, 0 after)" in lost


def test_a_second_pass_of_a_matrix_multiply_is_none_of_its_own():
    split = Kernel("forward", SCORES, "cublasLt::splitKreduce_kernel<32, 16>", "gemm", 2, 10.0)
    text = told("g_compile", [EAGER, replace(FUSED, kernels=(*PARTS, split))])
    assert "matrix multiplies" not in text


def test_the_document_shows_sets_of_parts_with_what_their_parts_take_when_not_compiled():
    text = answered("g_compile", [EAGER, replace(FUSED, kernels=PARTS)])
    assert "| computing attention scores + norm | (0.300) → 0.250 |" in text
    assert "(no inner range)                  |      0 → 0.0500 |" in text


def test_a_broken_graph_is_named():
    plain = Made()
    assert "the graph is broken in small at context 512 compiled (entire model), forward pass." in told(
        "g_compile", [plain, replace(compiled(plain), others={"graph_breaks": 2})]
    )


def test_the_ideal_is_the_time_at_the_peaks_of_the_data_sheet():
    """FLOPs and bytes of `small` at batch 4 and context 512, over 67 TFLOP/s and 4.8 TB/s."""
    own_model = {"d_ff": 3072, "forward_flops": 533_968_453_632}
    plain = Made(unprofiled_ms=20.0, others=own_model)
    (row,) = summaries_of("g_compile", plain, replace(compiled(plain), others=own_model))["compile_times"].to_dict(
        "records"
    )
    assert row["ideal_by_flops"] == pytest.approx(20.0 / (533_968_453_632 / 67e12 * 1e3))
    assert row["ideal_by_flops"] < row["ideal_by_bytes"]


@pytest.mark.parametrize(("precision", "number_bytes"), [("bf16", 4), ("bf16-weights", 2)])
def test_the_least_time_of_adamw_is_that_of_its_numbers_in_their_own_precision(precision, number_bytes):
    own_model = {"d_ff": 3072, "forward_flops": 533_968_453_632}
    runs = merged([Made(mode="train_step", precision=precision, others=own_model)])["runs"]
    least_ms = ideal_times(runs).set_index("phase").loc["optimizer", "by_bytes"]
    parameters = parameter_count(shape_of_run(runs.iloc[0]))
    assert least_ms == pytest.approx(1e3 * 7 * number_bytes * parameters / 4.8e12)


def test_the_document_shows_kernels_and_cost_of_every_compiled_run():
    text = answered("g_compile", both())
    kernels = text.partition("not compiled → compiled:")[2]
    assert line_of(kernels, "small", "512", "forward pass").count("→") >= 4
    assert " compiling, s |" in text
    assert GEMM not in text


def test_a_run_that_could_not_be_compiled_leaves_the_question_to_the_others():
    plain = Made(kernels=forward_kernels())
    refused = replace(compiled(plain), timing_status="unsupported", capture_status="unsupported", kernels=())
    assert told("g_compile", [plain, refused]).startswith("Not answered: no two timed runs differ only in compile")
