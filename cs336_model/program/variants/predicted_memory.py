"""What a run is predicted to need on each GPU, by component, from its shape and variant. Imports no torch.

For one process, the peak is computed by cs336_model/arithmetic/memory.py. Several processes also need buffers for
communication, and divide between them what FSDP divides.
"""

from collections.abc import Mapping
from typing import Any

from cs336_model import ranges
from cs336_model.arithmetic import memory
from cs336_model.arithmetic.flops import ModelShape, parameter_count
from cs336_model.program.variants.values import DDP, FSDP

PARAMETERS, GATHERED, MOMENTS, GRADIENTS, BUCKETS, ACTIVATIONS, LOGITS = PARTS = (
    "parameters", "gathered parameters", "optimizer state", "gradients", "buckets of gradients", "activations",
    "logits and loss",
)  # fmt: skip


def predicted_parts(shape: ModelShape, dimensions: Mapping[str, Any]) -> dict[str, int]:
    """Bytes of each component at its largest on one GPU, without those that are 0. They are not all needed at the same
    time: see `predicted_peak_bytes`. `shape` has the sequences of one GPU."""
    phases = ranges.PHASES_OF_MODE[dimensions["mode"]]
    all_bytes = memory.NUMBER_BYTES[dimensions["precision"]].number * parameter_count(shape)
    own_bytes = all_bytes - _remote_bytes(all_bytes, dimensions)
    parts = {PARAMETERS: own_bytes, GATHERED: _gathered_bytes(shape, dimensions)}
    logits = shape.tokens * shape.vocab_size
    activation = memory.ELEMENT_BYTES[dimensions["precision"]]
    if ranges.BACKWARD not in phases:
        return _nonzero(parts | {LOGITS: activation * logits})
    without_head = ModelShape(**vars(shape) | {"vocab_size": 0})  # LOGITS has the memory of the head
    parts |= {
        GRADIENTS: own_bytes,
        BUCKETS: all_bytes if dimensions["parallel"] == DDP else 0,
        ACTIVATIONS: memory.saved_activation_bytes(without_head, dimensions),
        # what the loss saves, and three tensors of its backward pass, in fp32; the output, if it has another type
        LOGITS: (4 * memory.FP32_BYTES + (activation if activation < memory.FP32_BYTES else 0)) * logits,
    }
    if ranges.OPTIMIZER in phases:
        parts[MOMENTS] = 2 * own_bytes
    return _nonzero(parts)


def predicted_peak_bytes(shape: ModelShape, dimensions: Mapping[str, Any]) -> int:
    """Bytes of tensors on one GPU at the fullest moment: of a step, or of making a model that is not divided. With
    divided parameters, this is an upper bound, because gradients count as if they were not divided. `shape` has the
    sequences of one GPU."""
    all_bytes = memory.NUMBER_BYTES[dimensions["precision"]].number * parameter_count(shape)
    parts = predicted_parts(shape, dimensions)
    # the peak of a run of one process, without the parameters that only other processes keep
    peak = memory.step_peak_bytes(shape, dimensions["mode"], dimensions) - _remote_bytes(all_bytes, dimensions)
    peak += parts.get(GATHERED, 0) + parts.get(BUCKETS, 0)
    if MOMENTS in parts:
        peak -= 2 * _remote_bytes(all_bytes, dimensions)
    return peak if dimensions["parallel"] == FSDP else max(peak, memory.build_peak_bytes(shape, dimensions))


def _remote_bytes(all_bytes: int, dimensions: Mapping[str, Any]) -> int:
    """Of `all_bytes` of parameters, those that only other processes keep."""
    return all_bytes - all_bytes // dimensions["gpus"] if dimensions["parallel"] == FSDP else 0


def _gathered_bytes(shape: ModelShape, dimensions: Mapping[str, Any]) -> int:
    """Bytes of the parameters that FSDP gathers at a time: those outside the layers, and two layers."""
    if dimensions["parallel"] != FSDP:
        return 0
    layers = ModelShape(**vars(shape) | {"vocab_size": 0, "num_layers": min(shape.num_layers, 2)})
    outside_layers = 2 * shape.vocab_size * shape.d_model
    return memory.NUMBER_BYTES[dimensions["precision"]].number * (outside_layers + parameter_count(layers))


def _nonzero(parts: Mapping[str, int]) -> dict[str, int]:
    return {name: parts[name] for name in PARTS if parts.get(name)}
