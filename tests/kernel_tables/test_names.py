"""Short names of kernels."""

import csv
from pathlib import Path

import pytest

from kernel_tables.names import short_names

NAMES = Path(__file__).with_name("kernel_names.tsv")  # see test_classes.py
CUTLASS = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)"
XMMA = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma_aligna4_alignc4"
    "_execute{}_kernel__5x_cublas"
)
LOOP = "void at::native::{}<(int)4, {}>(int, T2, T3)"
BINARY = "at::native::{}<float, float, float, at::native::binary_internal::MulFunctor<float>>"
NATIVE = "at::native::"


def test_names_of_many_programs_in_one_table_have_different_short_names_of_one_line():
    with NAMES.open(encoding="utf-8", newline="") as file:
        expected = {row["name"]: row["short"] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)}
    found = short_names(expected)
    assert {name: (found[name], short) for name, short in expected.items() if found[name] != short} == {}
    assert len({*found.values()}) == len(found) and max(map(len, found.values())) <= 60


@pytest.mark.parametrize(
    ("full", "short"),
    [
        (f"void {NATIVE}reduce_kernel<512, 1, {NATIVE}ReduceOp<int, {NATIVE}ArgMaxOps<int>>>(T3)", "reduce argmax"),
        (f"void <unnamed>::multi_tensor_apply_kernel<Metadata<2>, {NATIVE}CopyFunctor<int>>(T)", "foreach copy"),
        ("triton_poi_fused__to_copy_add_mul_native_layer_norm_3", "fused _to_copy add mul +1"),
        ("[CUDA memcpy Host-to-Device]", "memcpy HtoD"),
        ("[CUDA graph 4]", "graph 4"),
        ("aten::mm", "aten::mm"),
        ("", ""),
        ("void f<" * 5000, "f"),
        ("\x1b[31mred\n<script>" + "<" * 100_000, "\\x1b[31mred <script><<<<<<<<<<<<<<<<<<<…"),
    ],
)
def test_a_short_name_says_what_is_computed_on_one_line(full, short):
    assert short_names([full]) == {full: short}


def test_what_else_is_known_is_added_only_where_short_names_would_be_alike_then_numbers():
    xmma, other = XMMA.format(""), XMMA.format("").replace("stage3", "stage4")
    assert short_names([CUTLASS, xmma]) == {CUTLASS: "sgemm 256×128 nn cutlass", xmma: "sgemm 256×128 nn xmma"}
    assert list(short_names([other, CUTLASS, xmma]).values()) == [
        "sgemm 256×128 nn xmma #2", "sgemm 256×128 nn cutlass", "sgemm 256×128 nn xmma #1",
    ]  # fmt: skip
    loops = [
        LOOP.format("vectorized_elementwise_kernel", BINARY.format("BinaryFunctor")),
        LOOP.format("elementwise_kernel", BINARY.format("BinaryFunctor")),
        LOOP.format("vectorized_elementwise_kernel", BINARY.format("AUnaryFunctor")),
    ]
    assert list(short_names(loops).values()) == [
        "elementwise mul vectorized", "elementwise mul strided", "elementwise mul scalar-tensor vectorized",
    ]  # fmt: skip
    assert list(short_names(["void f<T2>(int)", "void f<T1>(int)", "f #1"]).values()) == ["f #3", "f #2", "f #1"]
