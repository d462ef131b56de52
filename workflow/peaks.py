"""From the name of a GPU to its highest rates by the data sheet of its maker: roofs that no kernel exceeds.

At the boost clock, without sparsity. A GPU that is not listed has no known peak (NaN).
"""

from math import nan

# TFLOP/s of fp32 without tensor cores, of tf32, and of bf16 and fp16 with them; GB/s of the memory
_HOPPER_SXM, _HOPPER_NVL, _A100 = (67, 494.7, 989.4), (60, 417.5, 835.5), (19.5, 156, 312)
PEAKS = {  # by the name that the driver reports; data sheets of the products, white papers of GA102, Ada and Blackwell
    "NVIDIA B200": (80, 1100, 2250, 8000),
    "NVIDIA H200": (*_HOPPER_SXM, 4800),
    "NVIDIA H200 NVL": (*_HOPPER_NVL, 4800),
    "NVIDIA H100 80GB HBM3": (*_HOPPER_SXM, 3350),
    "NVIDIA H100 PCIe": (51, 378, 756, 2000),
    "NVIDIA H100 NVL": (*_HOPPER_NVL, 3900),
    "NVIDIA A100-SXM4-80GB": (*_A100, 2039),
    "NVIDIA A100-SXM4-40GB": (*_A100, 1555),
    "NVIDIA A100 80GB PCIe": (*_A100, 1935),
    "NVIDIA A100-PCIE-40GB": (*_A100, 1555),
    "NVIDIA L40S": (91.6, 183, 362, 864),
    "NVIDIA L4": (30.3, 60, 121, 300),
    "NVIDIA A10": (31.2, 62.5, 125, 600),
    "NVIDIA GeForce RTX 4090": (82.6, 82.6, 165.2, 1008),
    "NVIDIA GeForce RTX 3090": (35.6, 35.6, 71, 936),
    "NVIDIA RTX A6000": (38.7, 77.4, 154.8, 768),
    "Tesla V100-SXM2-32GB": (15.7, nan, nan, 900),
    "Tesla T4": (8.1, nan, nan, 320),
}


def peak_flop_per_s(device_name: str | None, precision: str) -> float:
    """The peak of matrix multiplies in a precision of the grid; NaN if unknown."""
    fp32, tf32, half, _ = PEAKS.get(device_name, (nan,) * 4)
    return 1e12 * {"fp32": fp32, "tf32": tf32}.get(precision, half)


def peak_bytes_per_s(device_name: str | None) -> float:
    """The peak of the GPU's memory; NaN if unknown."""
    return 1e9 * PEAKS.get(device_name, (nan,) * 4)[3]
