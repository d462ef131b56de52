"""Warnings if the names of kernels contradict the precision that was asked for."""

import pandas as pd
import pytest

from profile_grid.stages.capture.step_tables import tensor_core_warnings

# SIMT and SGEMM do not run on tensor cores
SIMT = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel"
)
SGEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nt_align1>(T1::Params)"
ON_TENSOR_CORES = [
    "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_execute_kernel__5x_cublas",
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4>(Params)",
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
]


def kernels(*named: tuple[str, str, int]) -> pd.DataFrame:
    return pd.DataFrame(named, columns=["kernel", "class", "total_ns"])


@pytest.mark.parametrize("name", ON_TENSOR_CORES)
def test_names_of_tensor_core_kernels_are_known_and_others_are_not(name):
    assert tensor_core_warnings(kernels((name, "gemm", 1), (SIMT, "gemm", 1)), "tf32") == []
    assert tensor_core_warnings(kernels((SIMT, "gemm", 1), (SGEMM, "gemm", 1)), "fp32") == []


@pytest.mark.parametrize("precision", ["tf32", "bf16", "bf16-weights"])
def test_tensor_cores_that_were_asked_for_and_not_used_are_a_warning(precision):
    (warning,) = tensor_core_warnings(kernels((SIMT, "gemm", 9), (ON_TENSOR_CORES[0], "reduction", 9)), precision)
    assert (
        warning == f"precision is {precision}, and no matrix multiply has a kernel whose name belongs to tensor cores"
    )


def test_tensor_cores_in_fp32_are_a_warning_with_their_share_of_the_matrix_multiplies():
    (warning,) = tensor_core_warnings(kernels((SIMT, "gemm", 75), (ON_TENSOR_CORES[1], "gemm", 25)), "fp32")
    assert warning == "precision is fp32, and 25 % of the matrix multiplies' time is on tensor cores"


def test_a_run_without_matrix_multiplies_has_nothing_to_warn_of():
    assert tensor_core_warnings(kernels(("vectorized_elementwise_kernel", "elementwise", 5)), "bf16") == []
