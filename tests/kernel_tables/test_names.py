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
        (CUTLASS, "sgemm 256×128 nn"),
        (XMMA.format("_split_k"), "sgemm 256×128 nn split-k"),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x256x32_warpgroupsize2x1x1", "tf32 gemm 128×256 nt"),
        ("ampere_sgemm_128x64_tn", "sgemm 128×64 tn"),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_relu_f2f_stages_64x3_tn", "bf16 gemm 128×128 tn relu"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4>(P)", "tf32 gemm 64×64 nt"),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNN", "fp16 gemm 128×256 tnn"),
        (LOOP.format("vectorized_elementwise_kernel", BINARY.format("BinaryFunctor")), "elementwise mul"),
        (LOOP.format("elementwise_kernel", f"{NATIVE}exp_kernel_cuda(T &)::[lambda(float)]"), "elementwise exp"),
        (f"void {NATIVE}index_elementwise_kernel<4, {NATIVE}index_put_kernel_impl<float>>(T)", "elementwise index_put"),
        (
            LOOP.format("elementwise_kernel", f"void gpu_kernel_impl_nocast<{NATIVE}silu_backward_kernel(T)::[]>"),
            "elementwise silu backward",
        ),
        (f"void {NATIVE}reduce_kernel<512, 1, {NATIVE}ReduceOp<int, {NATIVE}ArgMaxOps<int>>>(T3)", "reduce argmax"),
        (f"void <unnamed>::multi_tensor_apply_kernel<Metadata<2>, {NATIVE}CopyFunctor<int>>(T)", "foreach copy"),
        ("void (anonymous namespace)::softmax_warp_forward<float, float, 9>(float*)", "softmax_warp_forward"),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64EEvPT0_", "add_rmsnorm_quant"),
        ("triton_poi_fused__to_copy_add_mul_native_layer_norm_3", "fused _to_copy add mul +1"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "nccl AllReduce"),
        ("[CUDA memcpy Host-to-Device]", "memcpy HtoD"),
        ("[CUDA memset]", "memset"),
        ("[CUDA graph 4]", "graph 4"),
        ("aten::mm", "aten::mm"),
        ("attn_fwd", "attn_fwd"),
        ("", ""),
        ("void f<" * 5000, "f"),
        ("\x1b[31mred\n<script>" + "<" * 100_000, "\\x1b[31mred <script><<<<<<<<<<<<<<<<<<<…"),
    ],
)
def test_a_short_name_says_what_is_computed_and_how(full, short):
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
