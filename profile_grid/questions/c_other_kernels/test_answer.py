"""The tables and sentences of (c), from made-up runs."""

from dataclasses import replace

import pytest

from tests.profile_grid.made_up import GEMM, MUL, Kernel, Made, forward_kernels, grid
from tests.profile_grid.made_up_answers import Said, answered, forward, rows, summaries


def test_forward_classes_sum_to_one_and_memory_operations_are_a_class_of_their_own():
    table = summaries(Made(kernels=forward_kernels(8000.0, 900.0)))["forward_classes"]
    assert rows(table, "class", "gpu_time_ms", "invocations") == [
        ("gemm", 8.0, 84.0),
        ("softmax", 0.9, 12.0),
        ("elementwise", 0.6, 24.0),
        ("reduction", 0.3, 24.0),
        ("memcpy", 0.002, 1.0),
    ]
    assert table["share"].sum() == pytest.approx(1.0)


def test_a_part_of_the_model_is_the_innermost_range_and_its_matrix_multiplies_are_apart():
    kernels = (
        Kernel("forward", "block > attention", GEMM, "gemm", 1, 600.0),
        Kernel("forward", "block > attention", MUL, "elementwise", 1, 300.0),
        Kernel("forward", "", MUL, "elementwise", 1, 100.0),
    )
    table = summaries(Made(kernels=kernels))["forward_parts"]
    assert rows(table, "part", "gpu_time_ms", "share", "other_share", "share_of_others") == [
        ("attention", 0.9, 0.9, 0.3, 0.75),
        ("(no inner range)", 0.1, 0.1, 0.1, 0.25),
    ]


def test_the_other_kernels_are_told_by_class_part_and_name():
    assert Said(forward())["c"] == (
        "Everything but matrix multiplies takes 18.4 % of the forward pass; its longest part is `computing softmax`."
        " Shares of the forward pass by class: softmax 9.2 %, elementwise 6.1 % and reduction 3.1 %. The longest part"
        " takes 49.9 % of the time besides matrix multiplies. The kernel with the most time besides matrix"
        " multiplies is **softmax_warp_forward**."
    )


def test_captures_without_inner_ranges_cannot_tell_parts_of_the_model():
    runs = [replace(run, kernels=tuple(replace(kernel, range="") for kernel in run.kernels)) for run in grid()]
    text = Said(runs)
    assert "Which part of the model these kernels serve is not known" in text["c"]
    assert (
        "the captures have no range `computing attention scores`, `computing softmax` and `final matmul`" in text["e"]
    )
    assert "51.2 % to 67.8 %" in text["b"]
    document = answered("c_other_kernels", runs)
    assert "(no inner range)" not in document and "Share by part" not in document
    assert "parts of the model |" not in document


def test_fused_attention_is_said_to_hold_matrix_multiplies():
    flash = Kernel("forward", "block > attention", "flash_fwd_kernel", "attention", 12, 1000.0)
    text = Said(forward(kernels=(Kernel("forward", "", GEMM, "gemm", 60, 3000.0), flash)))
    assert "Fused attention kernels (25.0 % of the forward pass) contain matrix multiplies and softmax" in text["c"]
    assert "Fused attention kernels" in text["e"]
