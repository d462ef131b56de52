"""Whether a matrix multiply ran on tensor cores, by the name of its kernel."""

from __future__ import annotations

import re

# cuBLAS and CUTLASS name the instruction (tensorop, wmma, hmma, tensor16x8x8) or the operands (tf32f32, bf16bf16);
# nvjet is cuBLAS's family for Hopper and Blackwell, which has no other kind
ON_TENSOR_CORES = r"tensorop|tensor\d+x\d+|[wh]g?mma|tf32|bf16bf16|nvjet"
IN_FP32 = r"sgemm|simt|ffma|f32f32_f32f32"


def is_fp32_without_tensor_cores(name: str) -> bool:
    """Whether a matrix multiply of this name computes in fp32 on ordinary cores; no where the name does not tell."""
    return bool(re.search(IN_FP32, name, re.IGNORECASE)) and not re.search(ON_TENSOR_CORES, name, re.IGNORECASE)
