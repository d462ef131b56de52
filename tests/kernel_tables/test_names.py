"""Short names of kernels."""

import json
from pathlib import Path

import pytest

from kernel_tables.__main__ import main
from kernel_tables.kernel_names.short import MAX_CHARACTERS, as_text, name_facts, parts_of, short_name, short_names

REAL_NAMES = list(json.loads((Path(__file__).parent / "kernel_names.json").read_text()))
CUTLASS = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)"
XMMA = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma_aligna4_alignc4"
    "_execute{}_kernel__5x_cublas"
)
LOOP = "void at::native::{}<(int)4, {}>(int, T2, T3)"
BINARY = "at::native::{}<float, float, float, at::native::binary_internal::MulFunctor<float>>"
NATIVE = "at::native::"
IMPLEMENTATION = "at::native::gpu_kernel_impl_nocast"


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
        (
            LOOP.format("elementwise_kernel", f"{NATIVE}exp_kernel_cuda(at::TensorIteratorBase &)::[lambda(float)]"),
            "elementwise exp",
        ),
        (
            LOOP.format("elementwise_kernel", f"void {IMPLEMENTATION}<{NATIVE}<unnamed>::silu_backward_kernel(T)::[]>"),
            "elementwise silu backward",
        ),
        (f"void {NATIVE}reduce_kernel<512, 1, {NATIVE}ReduceOp<int, {NATIVE}ArgMaxOps<int>>>(T3)", "reduce argmax"),
        (
            f"void <unnamed>::multi_tensor_apply_kernel<TensorListMetadata<2>, {NATIVE}CopyFunctor<int>>(T)",
            "foreach copy",
        ),
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
    ],
)  # fmt: skip
def test_a_short_name_says_what_is_computed_and_how(full, short):
    assert short_name(full) == short


def test_all_real_names_have_short_names_that_are_different_and_fit_a_line():
    found = short_names(REAL_NAMES)
    assert list(found) == REAL_NAMES
    assert len(set(found.values())) == len(REAL_NAMES)
    assert max(map(len, found.values())) <= MAX_CHARACTERS + 20
    assert all(name.strip() == name and name.isprintable() and name for name in found.values())


def test_few_real_names_are_told_apart_by_a_number_alone():
    """442 names of many programs in one table: those left are one kernel as two profilers spell it, or as two lists of
    long arguments tell it apart."""
    numbered = [name for name in short_names(REAL_NAMES).values() if "#" in name]
    assert len(numbered) < len(REAL_NAMES) / 9


def test_what_tells_kernels_apart_is_added_only_where_short_names_would_be_alike():
    xmma = XMMA.format("")
    assert short_names([CUTLASS]) == {CUTLASS: "sgemm 256×128 nn"}
    assert short_names([CUTLASS, xmma]) == {CUTLASS: "sgemm 256×128 nn cutlass", xmma: "sgemm 256×128 nn xmma"}
    loops = [
        LOOP.format(loop, BINARY.format(binding))
        for loop, binding in (
            ("vectorized_elementwise_kernel", "BinaryFunctor"),
            ("elementwise_kernel", "BinaryFunctor"),
            ("vectorized_elementwise_kernel", "AUnaryFunctor"),
        )
    ]
    assert list(short_names(loops).values()) == [
        "elementwise mul vectorized", "elementwise mul strided", "elementwise mul scalar-tensor",
    ]  # fmt: skip


def test_names_that_no_part_tells_apart_are_numbered_in_the_order_of_the_full_names():
    assert short_names(["void f<T2>(int)", "void f<T1>(int)", "f #1"]) == {
        "void f<T2>(int)": "f <T2>", "void f<T1>(int)": "f <T1>", "f #1": "f #1",
    }  # fmt: skip
    same, far = "x" * 50, "y" * 4000  # more than is read of a name
    assert short_names([f"{same}{far}b", f"{same}{far}a"]) == {
        f"{same}{far}a": f"{'x' * 39}… #1", f"{same}{far}b": f"{'x' * 39}… #2",
    }  # fmt: skip


def test_long_names_that_begin_alike_are_cut_where_they_begin_to_differ():
    tile = "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt64x{}_wt32x32x8_ws1x1_wr2x1"
    assert list(short_names([tile.format("128x32"), tile.format("64x16"), "attn_fwd"]).values()) == [
        "igemm_fwd_gtcx3_nh…bt64x128x32_wt32x32x…", "igemm_fwd_gtcx3_nh…bt64x64x16_wt32x32x8…", "attn_fwd",
    ]  # fmt: skip
    same = "x" * 50
    assert list(short_names([f"{same}b", f"{same}a", same]).values()) == [f"{'x' * 18}…{end}" for end in ("b", "a", "")]


@pytest.mark.parametrize(
    ("full", "type_"),
    [
        (LOOP.format("vectorized_elementwise_kernel", BINARY.format("AUnaryFunctor")), "fp32"),
        (LOOP.format("elementwise_kernel", BINARY.replace("float,", "c10::BFloat16,").format("BUnaryFunctor")), "bf16"),
        (
            f"void {NATIVE}<unnamed>::CatArrayBatchedCopy<{NATIVE}OpaqueType<(unsigned int)2>, unsigned int, 3>(T)",
            "2-byte",
        ),
        (f"void {NATIVE}(anonymous namespace)::CatArrayBatchedCopy<{NATIVE}OpaqueType<4u>, unsigned int>(T)", "4-byte"),
    ],
)
def test_the_type_is_that_of_the_tensors_not_of_what_computes_or_counts(full, type_):
    assert [part.text for part in parts_of(full) if part.key == "type"] == [type_]


def test_writing_through_an_index_is_told_from_reading_through_it():
    full = (
        f"void {NATIVE}index_elementwise_kernel<128, 4, {NATIVE}gpu_index_kernel<{NATIVE}{{}}_kernel_impl<float>>>(T)"
    )
    assert [short_name(full.format(name)) for name in ("index", "index_put")] == [
        "elementwise index", "elementwise index_put",
    ]  # fmt: skip


def test_names_that_are_taken_stay_as_they_are_and_are_given_to_no_other_kernel():
    xmma = XMMA.format("")
    assert short_names([xmma, CUTLASS], {CUTLASS: "sgemm 256×128 nn"}) == {
        xmma: "sgemm 256×128 nn xmma", CUTLASS: "sgemm 256×128 nn",
    }  # fmt: skip
    assert short_names(["attn_fwd"], {"other": "attn_fwd"})["attn_fwd"] == "attn_fwd #1"


def test_a_hostile_name_becomes_a_short_visible_line():
    found = short_name("\x1b[31mred\n<script>" + "<" * 100_000)
    assert found.isprintable()
    assert len(found) <= MAX_CHARACTERS
    assert short_name("void f<" * 5000) == "f"


def test_the_facts_of_a_name_are_its_short_name_its_class_and_the_rule_of_that_class():
    short, kernel_class, *rules = name_facts(CUTLASS)
    assert short[:2] == ("short name", "sgemm 256×128 nn")
    assert kernel_class == ("class", "gemm", "CUTLASS: the template argument is the product")
    assert {rule.about for rule in rules} == {"rule"}
    assert name_facts("no_such", [{"class": "mine", "pattern": "no_such"}])[1].value == "mine"
    assert name_facts("no_such")[1].value == "unknown"


def test_the_text_fits_the_width_of_its_terminal():
    for name in REAL_NAMES[::9]:
        assert max(map(len, as_text(name_facts(name), 80).splitlines())) <= 80


def test_the_command_names_a_kernel_as_text_and_in_every_format(capsys, tmp_path):
    assert main(["names", "ampere_sgemm_128x64_tn"]) == 0
    assert capsys.readouterr().out.startswith("short name  sgemm 128×64 tn")
    assert main(["names", "ampere_sgemm_128x64_tn", "-o", str(tmp_path / "name.json")]) == 0
    assert json.loads((tmp_path / "name.json").read_text())[1]["value"] == "gemm"
