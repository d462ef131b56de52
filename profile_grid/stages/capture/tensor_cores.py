"""Whether a run's matrix multiplies ran on tensor cores: its precision, compared with the names of its kernels."""

import pandas as pd

from cs336_model.program.variants.values import FP32
from kernel_tables.kernel_classes.categories import ON_TENSOR_CORES
from profile_grid.tables.classes import is_matmul


def tensor_core_warnings(kernels: pd.DataFrame, precision: str) -> list[str]:
    """Contradictions between the kernels (columns kernel, class, total_ns) of a GPU program and its precision: no
    matrix multiply on tensor cores in another precision than fp32, or some in fp32."""
    matmuls = kernels[is_matmul(kernels["class"])]
    on_tensor_cores = matmuls["kernel"].str.contains(ON_TENSOR_CORES, case=False, regex=True)
    if precision == FP32 and on_tensor_cores.any():
        share = matmuls.loc[on_tensor_cores, "total_ns"].sum() / matmuls["total_ns"].sum()
        return [f"precision is fp32, and {100 * share:.0f} % of the matrix multiplies' time is on tensor cores"]
    if precision != FP32 and len(matmuls) and not on_tensor_cores.any():
        return [f"precision is {precision}, and no matrix multiply has a kernel whose name belongs to tensor cores"]
    return []
