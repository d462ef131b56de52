"""The peak rates of GPUs by their makers' figures, each with its source. A GPU that is not listed has no known peak."""

from dataclasses import dataclass

from cs336_model.program.variants.values import FP16, FP32, TF32

# the sources
HOPPER = "NVIDIA H100 Tensor Core GPU datasheet, nvidia.com/en-us/data-center/h100"
H200 = "NVIDIA H200 Tensor Core GPU datasheet, nvidia.com/en-us/data-center/h200"
A100 = "NVIDIA A100 Tensor Core GPU datasheet, nvidia.com/en-us/data-center/a100"
B200 = "NVIDIA Blackwell Architecture Technical Brief (HGX B200)"
L40S = "NVIDIA L40S datasheet, nvidia.com/en-us/data-center/l40s"
L4 = "NVIDIA L4 datasheet, nvidia.com/en-us/data-center/l4"
A10 = "NVIDIA A10 datasheet, nvidia.com/en-us/data-center/products/a10-gpu"
ADA = "NVIDIA Ada GPU Architecture white paper, GeForce RTX 4090"
GA102 = "NVIDIA Ampere GA102 GPU Architecture white paper"
VOLTA = "NVIDIA V100 Tensor Core GPU datasheet"
TURING = "NVIDIA T4 datasheet"


@dataclass(frozen=True)
class Peaks:
    """Peak rates of one GPU at its boost clock, without sparsity; None for a precision without tensor cores for it."""

    fp32_flop_per_s: float
    tf32_flop_per_s: float | None
    bf16_flop_per_s: float | None
    fp16_flop_per_s: float | None
    memory_bytes_per_s: float
    source: str

    def flop_per_s(self, precision: str) -> float | None:
        """Peak of matrix multiplies in `precision`: fp32 without tensor cores (PyTorch's default), others with them."""
        peaks = {FP32: self.fp32_flop_per_s, TF32: self.tf32_flop_per_s, FP16: self.fp16_flop_per_s}
        return peaks.get(precision, self.bf16_flop_per_s)


def _peaks(
    fp32_tflop_per_s: float, tf32_tflop_per_s: float | None, bf16_tflop_per_s: float | None,
    memory_gb_per_s: float, source: str, fp16_tflop_per_s: float | None = None,
) -> Peaks:  # fmt: skip
    """The peaks; without `fp16_tflop_per_s`, fp16 is as fast as bf16."""
    teras = (fp32_tflop_per_s, tf32_tflop_per_s, bf16_tflop_per_s, fp16_tflop_per_s or bf16_tflop_per_s)
    return Peaks(*(tera and tera * 1e12 for tera in teras), memory_bytes_per_s=memory_gb_per_s * 1e9, source=source)


PEAKS = {  # by the name that the driver reports: TFLOP/s in fp32, tf32 and bf16; GB/s of the memory; the source
    "NVIDIA B200": _peaks(80, 1100, 2250, 8000, B200),
    "NVIDIA H200": _peaks(67, 494.7, 989.4, 4800, H200),
    "NVIDIA H200 NVL": _peaks(60, 417.5, 835.5, 4800, H200),
    "NVIDIA H100 80GB HBM3": _peaks(67, 494.7, 989.4, 3350, HOPPER),
    "NVIDIA H100 PCIe": _peaks(51, 378, 756, 2000, HOPPER),
    "NVIDIA H100 NVL": _peaks(60, 417.5, 835.5, 3900, HOPPER),
    "NVIDIA A100-SXM4-80GB": _peaks(19.5, 156, 312, 2039, A100),
    "NVIDIA A100-SXM4-40GB": _peaks(19.5, 156, 312, 1555, A100),
    "NVIDIA A100 80GB PCIe": _peaks(19.5, 156, 312, 1935, A100),
    "NVIDIA A100-PCIE-40GB": _peaks(19.5, 156, 312, 1555, A100),
    "NVIDIA L40S": _peaks(91.6, 183, 362, 864, L40S),
    "NVIDIA L4": _peaks(30.3, 60, 121, 300, L4),
    "NVIDIA A10": _peaks(31.2, 62.5, 125, 600, A10),
    "NVIDIA GeForce RTX 4090": _peaks(82.6, 82.6, 165.2, 1008, ADA),
    "NVIDIA GeForce RTX 3090": _peaks(35.6, 35.6, 71, 936, GA102),
    "NVIDIA RTX A6000": _peaks(38.7, 77.4, 154.8, 768, GA102),
    "Tesla V100-SXM2-32GB": _peaks(15.7, None, None, 900, VOLTA, fp16_tflop_per_s=125),
    "Tesla V100-SXM2-16GB": _peaks(15.7, None, None, 900, VOLTA, fp16_tflop_per_s=125),
    "Tesla V100-PCIE-32GB": _peaks(14, None, None, 900, VOLTA, fp16_tflop_per_s=112),
    "Tesla V100-PCIE-16GB": _peaks(14, None, None, 900, VOLTA, fp16_tflop_per_s=112),
    "Tesla T4": _peaks(8.1, None, None, 320, TURING, fp16_tflop_per_s=65),
}


def peaks_of(device_name: object) -> Peaks | None:
    """The peaks of the GPU with exactly this name; None for another GPU, a CPU, or a missing name."""
    return PEAKS.get(device_name)


def peaks_in_words(device_name: str | None, precision: str) -> str:
    """A sentence with the peaks that a figure shows and their source, or that none are known."""
    peaks = peaks_of(device_name)
    if peaks is None:
        return f"The peaks of {device_name or 'this device'} are not known to this project, so none are drawn."
    rate = peaks.flop_per_s(precision)
    compute = f"{rate / 1e12:g} TFLOP/s in {precision}" if rate else f"no peak given in {precision}"
    return f"Peaks of {device_name}: {compute}, {peaks.memory_bytes_per_s / 1e12:g} TB/s ({peaks.source})."
