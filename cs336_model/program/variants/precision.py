"""Precisions: fp32 without tensor cores, tf32 in matrix products, bf16 or fp16 by autocast, and bf16 weights."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from cs336_model.program.spec import RunSpec
from cs336_model.program.variants.values import BF16, BF16_WEIGHTS, FP16, TF32

BY_AUTOCAST = {BF16: torch.bfloat16, FP16: torch.float16}


def choose_matmul_precision(spec: RunSpec) -> None:
    """Sets for the entire process whether fp32 products use TF32: only in precision tf32, whatever PyTorch's default.
    PyTorch has three APIs for this, and raises if they are mixed; this project only uses this one."""
    torch.set_float32_matmul_precision("high" if spec.dimensions["precision"] == TF32 else "highest")


def autocast(spec: RunSpec, device: torch.device) -> AbstractContextManager:
    """bf16 or fp16 for the operations that autocast considers safe, with fp32 weights; nothing in other precisions.
    Losses are not scaled: in fp16, gradients below 6e-8 are 0."""
    dtype = BY_AUTOCAST.get(spec.dimensions["precision"])
    return torch.autocast(device.type, dtype=dtype) if dtype else nullcontext()


def dtype_of(precision: str) -> torch.dtype:
    """The type of activations, such as queries, keys and values."""
    return torch.bfloat16 if precision == BF16_WEIGHTS else BY_AUTOCAST.get(precision, torch.float32)


def round_weights(spec: RunSpec, model: nn.Module) -> None:
    """Rounds the weights to bf16 in precision bf16-weights. Buffers (rotary angles) stay as they are."""
    if spec.dimensions["precision"] == BF16_WEIGHTS:
        for parameter in model.parameters():
            parameter.data = parameter.data.to(torch.bfloat16)
