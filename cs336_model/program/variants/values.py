"""The values of dimensions in the measured program, and which combinations are impossible. Imports no torch."""

from collections.abc import Mapping
from typing import Any

from cs336_model.arithmetic.checkpoints import NO_CHECKPOINT, nesting_error
from cs336_model.arithmetic.flops import PROJECT_CONSTRUCTOR
from cs336_model.ranges import FORWARD, TRAIN_STEP

FP32, TF32, BF16, BF16_WEIGHTS, FP16 = PRECISIONS = ("fp32", "tf32", "bf16", "bf16-weights", "fp16")
NOT_COMPILED, WHOLE_MODEL, ATTENTION_ALONE = COMPILES = ("off", "on", "attention")
EAGER = "eager"
ATTENTIONS = (EAGER, "math", "flash", "efficient", "cudnn")
NOT_PARALLEL, NAIVE, DDP, FSDP = PARALLELS = ("none", "naive", "ddp", "fsdp")
ADAMW, FUSED = OPTIMIZERS = ("adamw", "fused")

# The largest relative error of rounding one number: 2^-p for a significand of p bits. TF32 keeps 11 of them in the
# operands of a matrix product, bf16 keeps 8 (NVIDIA A100 white paper; IEEE 754 binary32 keeps 24, binary16 11).
UNIT_ROUNDOFF = {FP32: 2**-24, TF32: 2**-11, BF16: 2**-8, BF16_WEIGHTS: 2**-8, FP16: 2**-11}


def reduces_only_gradients(dimensions: Mapping[str, Any]) -> bool:
    """Whether a run on several GPUs communicates only gradients, and can leave that out of a step."""
    return dimensions["parallel"] != FSDP


def impossibility(dimensions: Mapping[str, Any], constructor: str) -> str | None:
    """Why no machine can measure this combination, in one line; None if it is possible, or only a machine knows."""
    compilation, attention, checkpoint = (dimensions[key] for key in ("compile", "attention", "checkpoint"))
    if reason := nesting_error(checkpoint):
        return reason
    if compilation != NOT_COMPILED and checkpoint != NO_CHECKPOINT:
        return (
            f"compile {compilation} with checkpoint {checkpoint}: a compiled graph has no ranges, so recomputation"
            " cannot be recognized; list them in separate products"
        )
    if reason := _impossibility_on_several_gpus(dimensions):
        return reason
    needs_project_model = {
        "compile": compilation == ATTENTION_ALONE, "attention": attention != EAGER,
        "checkpoint": checkpoint != NO_CHECKPOINT,
    }  # fmt: skip
    key = next((key for key, is_needed in needs_project_model.items() if is_needed), None)
    if key is not None and constructor != PROJECT_CONSTRUCTOR:
        return (
            f"{key} {dimensions[key]} with the model {constructor}"
            f": this changes a part of the model, and only works with {PROJECT_CONSTRUCTOR}; leave it at its default"
        )
    return None


def _impossibility_on_several_gpus(dimensions: Mapping[str, Any]) -> str | None:
    gpus, parallel, batch, compilation = (dimensions[key] for key in ("gpus", "parallel", "batch_size", "compile"))
    choice = f"gpus {gpus} with parallel {parallel}"
    if (gpus > 1) != (parallel != NOT_PARALLEL):
        return f"{choice}: gradients are reduced on several GPUs, and only there; list one with the other"
    optimizer, mode = dimensions["optimizer"], dimensions["mode"]
    if optimizer != ADAMW and mode != TRAIN_STEP:
        return f"optimizer {optimizer} with mode {mode}: only {TRAIN_STEP} has an optimizer; list them separately"
    if gpus == 1:
        return None
    if dimensions["mode"] == FORWARD:
        return f"{choice} with mode {FORWARD}: it has no gradients to reduce; list forward_backward or train_step"
    if batch % gpus:
        return f"{choice} with batch_size {batch}: all GPUs share a batch, and {gpus} does not divide it"
    if compilation != NOT_COMPILED:
        return (
            f"{choice} with compile {compilation}: a compiled graph is split at the buckets of gradients; leave it off"
        )
    return None
