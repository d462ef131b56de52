"""Whether a run's matrix multiplies ran on tensor cores: what was asked for, held against the names of the kernels."""

from __future__ import annotations

import pandas as pd

from cs336_model.program.variants.values import FP32
from kernel_tables.kernel_classes.categories import ON_TENSOR_CORES
from profile_grid.tables.classes import is_matmul


def tensor_core_warnings(kernels: pd.DataFrame, precision: str) -> list[str]:
    """What the kernels (columns kernel, class, total_ns) of a GPU program say against its precision: none of its matrix
    multiplies ran on tensor cores though that was asked for, or some did in fp32."""
    matmuls = kernels[is_matmul(kernels["class"])]
    on_them = matmuls["kernel"].str.contains(ON_TENSOR_CORES, case=False, regex=True)
    if precision == FP32 and on_them.any():
        share = matmuls.loc[on_them, "total_ns"].sum() / matmuls["total_ns"].sum()
        return [f"fp32 was asked for, and {100 * share:.0f} % of the matrix multiplies' time is on tensor cores"]
    if precision != FP32 and len(matmuls) and not on_them.any():
        return [f"{precision} was asked for, and no name of a matrix multiply's kernel tells of tensor cores"]
    return []
