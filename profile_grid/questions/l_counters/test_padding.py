"""FLOPs in whole tiles beside those of the shapes."""

import math

import pytest

from cs336_model.arithmetic.flops import ModelShape, matmul_shapes
from kernel_tables.kernel_names.matrix import tile_of
from profile_grid.questions.l_counters.matmuls import gradients, is_within_padding, padded_ratio

XMMA = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x32x8_stage3_warpsize4x1x1_ffma_aligna4_alignc4_execute_kernel"
CUTLASS = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nt_align1>(T1::Params)"
NVJET, WIDE_NVJET = "nvjet_sm90_tst_96x128_64x6_2x1_v_bz_NNN", "nvjet_sm90_tst_192x160_64x3_2x1_v_bz_coopB_NTT"
REDUCTION = "void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float>(T1)"
SCORES, VALUES, HEAD = (512, 512, 80), (512, 80, 512), (2048, 10_000, 768)  # heads of 80 at context 512


def test_names_tell_rows_columns_and_depth_of_a_tile():
    assert [tile_of(name) for name in (XMMA, CUTLASS, NVJET, REDUCTION)] == [
        (128, 32, 8), (128, 128, 8), (96, 128, 64), None,
    ]  # fmt: skip


def test_all_products_of_a_part_have_as_many_flops_and_so_have_their_gradients():
    for products in matmul_shapes(ModelShape(4, 512, 10_000, 2560, 32, 32, 10_240)).values():
        assert len({m * n * k for m, n, k in (*products, *gradients(products))}) == 1


@pytest.mark.parametrize(
    ("counted", "kernels", "products", "in_tiles"),
    [  # as counted on an H200, except for how many numbers of the result are scaled
        (1.20234375, {XMMA: 1}, [VALUES], 96 / 80),
        (1.401953125, {XMMA: 1, CUTLASS: 1}, gradients([SCORES]), (96 / 80 + 128 / 80) / 2),
        (1.107421875, {XMMA: 1, CUTLASS: 1}, gradients([VALUES]), (1 + 96 / 80) / 2),
        (1.0064, {NVJET: 1, WIDE_NVJET: 1}, gradients([HEAD]), (10_048 / 10_000 + 10_080 / 10_000) / 2),
        (1.0025, {CUTLASS: 1, REDUCTION: 1}, [(2048, 2560, 2560)], 1.0),
    ],
)  # fmt: skip
def test_tiles_explain_what_was_counted(counted, kernels, products, in_tiles):
    assert padded_ratio(counted, kernels, products) == pytest.approx(in_tiles)
    assert is_within_padding(counted, in_tiles, products)


def test_no_tiles_are_told_unless_every_product_has_one():
    assert math.isnan(padded_ratio(1.0, {REDUCTION: 1}, [VALUES]))
    assert math.isnan(padded_ratio(1.0, {XMMA: 1}, [VALUES, VALUES]))
    assert math.isnan(padded_ratio(1.0, {XMMA: 0.5, CUTLASS: 0.5}, [VALUES]))


def test_fewer_flops_than_in_tiles_and_many_more_are_beyond_the_padding():
    assert not is_within_padding(1.19, 1.2, [VALUES]) and not is_within_padding(1.23, 1.2, [VALUES])
    assert is_within_padding(1.04, math.nan, [VALUES]) and not is_within_padding(1.06, math.nan, [VALUES])
