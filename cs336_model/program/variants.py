"""What each dimension of a run does to the measured program: the one place where a new dimension takes effect.

A run specification that names a dimension which is not here is refused: nothing is measured under a wrong name.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from cs336_model.program.spec import RunSpec

# model and context_length choose the arguments of the constructor, mode the phases of a step
KNOWN_DIMENSIONS = ("model", "context_length", "mode", "precision", "batch_size")
PRECISIONS = ("fp32", "bf16")


def prepare_process(spec: "RunSpec") -> None:
    """Settings of the whole process, made before the model: fp32 is fp32, whatever this PyTorch does by default."""
    import torch

    torch.set_float32_matmul_precision("highest")


def autocast(spec: "RunSpec", device: "torch.device") -> AbstractContextManager:
    """bf16 for the operations that autocast deems safe, weights staying fp32; nothing at all in fp32."""
    import torch

    if spec.dimensions["precision"] == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


def batch_shape(spec: "RunSpec") -> tuple[int, int]:
    """Sequences, and tokens of each, the token that follows the last one included."""
    return spec.dimensions["batch_size"], spec.dimensions["context_length"] + 1
