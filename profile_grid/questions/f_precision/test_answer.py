"""(f): speed-ups of runs that differ in precision alone, where they come from, and the errors."""

from dataclasses import replace

import pandas as pd
import pytest

from profile_grid.documents.documents import document_names
from profile_grid.documents.summaries import summary_tables
from profile_grid.study.dimensions import PRECISION
from profile_grid.tables.ratios import with_base
from tests.profile_grid.made_up import Kernel, Made, forward_kernels, grid, merged
from tests.profile_grid.made_up_answers import Said, document_of
from tests.profile_grid.test_answers import line_of, rendered


def faster(run: Made, times: float, precision: str = "bf16") -> Made:
    """The same run in another precision: its step and all kernels but softmax are this many times as fast."""
    kernels = tuple(
        kernel if kernel.kernel_class == "softmax" else replace(kernel, time_us=kernel.time_us / times)
        for kernel in run.kernels
    )
    return replace(run, precision=precision, kernels=kernels, unprofiled_ms=run.unprofiled_ms / times)


def in_two(times: float = 4.0) -> list[Made]:
    return [run for fp32 in grid() for run in (fp32, faster(fp32, times))]


def test_the_question_is_asked_where_runs_differ_in_precision_and_nowhere_else():
    assert "f_precision" not in document_names(merged(grid())["runs"])
    without, with_it = rendered(grid()), rendered(in_two())
    assert "f_precision" not in without and "(f)" not in without["answers"]
    assert "f_precision" in document_names(merged(in_two())["runs"])
    assert "## (f) What does lower precision gain" in with_it["answers"]


def test_a_speed_up_is_the_ratio_to_the_run_that_differs_in_precision_alone_with_its_spread():
    fp32 = Made(unprofiled_ms=10.0, unprofiled_std_ms=0.3)
    bf16 = replace(fp32, precision="bf16", unprofiled_ms=2.5, unprofiled_std_ms=0.1)
    others = [replace(bf16, batch_size=8), replace(bf16, context_length=128), replace(bf16, attention="flash")]
    (row,) = summary_tables(merged([fp32, bf16, *others]), ["precision_times"])["precision_times"].to_dict("records")
    assert (row["run"], row["base_run"]) == (bf16.name, fp32.name)
    assert row["speed_up"] == pytest.approx(4.0)
    assert row["speed_up_std"] == pytest.approx(4.0 * (0.03**2 + 0.04**2) ** 0.5)
    assert row["ideal_by_flops"] == pytest.approx(989.4 / 67) and row["ideal_by_bytes"] == 2.0


def test_two_partners_are_an_error_and_never_a_mean():
    rows = merged([Made(), replace(Made(), precision="bf16")])["timings"]
    twice = pd.concat([rows, rows[rows["precision"] == "fp32"]])
    with pytest.raises(pd.errors.MergeError):
        with_base(twice, PRECISION, "mean_ms", "std_ms", by=["phase"])


def test_a_run_whose_partner_has_no_time_has_no_speed_up():
    out = Made(timing_status="out_of_memory", capture_status="out_of_memory")
    tables = merged([out, replace(Made(), precision="bf16")])
    assert summary_tables(tables, ["precision_times"])["precision_times"].empty


def test_the_parts_say_what_gains_and_what_does_not():
    parts = summary_tables(merged(in_two()), ["precision_parts"])["precision_parts"]
    softmax = parts[(parts["part"] == "computing softmax") & (parts["phase"] == "forward")]
    assert softmax["speed_up"].tolist() == pytest.approx([1.0] * len(softmax))
    others = parts[(parts["part"] == "feed-forward")]
    assert len(others) and others["speed_up"].tolist() == pytest.approx([4.0] * len(others), rel=1e-3)
    text = Said(in_two())["f"]
    assert (
        "forward pass in fp32, feed-forward gains most (× 4.00) and computing softmax least (× 1.00), by GPU time"
        in text
    )


def test_the_sentences_say_how_much_faster_a_step_is_in_how_many_runs_and_the_errors():
    text = Said(in_two())["f"]
    assert text.startswith("In bf16, the training step of small at context 128 is 4.00 times as fast as in fp32; all")
    assert "In bf16: faster in all 12 runs (× 4.0" in text
    assert "The logits of the first step differ from fp64 by at most 1.2e-07 in fp32 and 7.8e-03 in bf16" in text
    assert "; all errors that were computed are small enough to be rounding." in text


def test_where_a_precision_is_slower_that_is_said():
    runs = [Made(kernels=forward_kernels()), faster(Made(kernels=forward_kernels()), 0.5)]
    assert "In bf16: slower in the only run (× 0.500)." in Said(runs)["f"]


def test_a_run_that_rounding_does_not_explain_is_marked_in_sentence_and_table():
    tables = merged(in_two())
    off = tables["accuracy"]["run"] == "small_ctx512_forward_bf16"
    tables["accuracy"].loc[off, ["logits_error", "within_precision"]] = [0.9, False]
    text = document_of("f_precision", tables)
    assert "the error of small at context 512 in bf16, forward pass is too large for rounding." in text
    assert line_of(text, "small", "512", "forward pass", "bf16").endswith("**no** |")


def test_the_document_has_a_line_per_configuration_and_a_column_per_precision():
    runs = [*in_two(), *(faster(run, 2.0, "tf32") for run in grid())]
    text = rendered(runs)["f_precision"]
    cells = [cell.strip() for cell in line_of(text, "small", "512", "training step").split("|")[1:-1]]
    assert len(cells) == 6 and "(× 2.0" in cells[4] and "(× 4.0" in cells[5]
    heading = next(line for line in text.splitlines() if "fp32, ms" in line)
    assert [cell.strip() for cell in heading.split("|")[4:-1]] == ["fp32, ms", "tf32, ms", "bf16, ms"]


def test_a_kernel_without_a_range_counts_in_its_phase():
    run = Made(kernels=(*forward_kernels(), Kernel("forward", "", "memcpy", "gemm", 1, 100.0)))
    parts = summary_tables(merged([run, faster(run, 2.0)]), ["precision_parts"])["precision_parts"]
    assert parts[parts["part"] == "(no inner range)"]["speed_up"].tolist() == pytest.approx([2.0])


def test_what_two_processes_differ_by_themselves_is_no_gain_and_says_how_many_processes_would_do():
    waiting = Made(kernels=forward_kernels(), unprofiled_ms=40.0)
    text = Said([waiting, faster(waiting, 1.2)])["f"]
    assert text.startswith(
        "Whether the forward pass of small at context 512 is faster in bf16 than in fp32 is unclear: 39 processes"
    )
    assert "39 processes per run would probably show a difference of 10 %" in text
    assert "faster in the only run" not in text
