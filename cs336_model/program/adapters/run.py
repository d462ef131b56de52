"""The checks of all of a student's code that a run of a model measures, before anything is timed."""

from typing import Any

import torch

from cs336_model.arithmetic.flops import sequences_per_gpu, shape_of
from cs336_model.program.adapters.attention import checked_attention, tried_attention
from cs336_model.program.adapters.distributed_checks import checked_optimizer, checked_reduction
from cs336_model.program.spec import RunSpec
from cs336_model.program.variants.values import OWN_ATTENTIONS, OWN_DDP, OWN_FSDP, OWN_SHARDED


def checked_adapters(spec: RunSpec, device: torch.device) -> list[dict[str, Any]]:
    """The checks, as JSON has them; [] for a run without a student's code. Raises Wrong or Failed."""
    checks = []
    if spec.dimensions["attention"] in OWN_ATTENTIONS:
        checks += _of_attention(spec, device)
    if spec.dimensions["parallel"] in (OWN_DDP, OWN_FSDP):
        checks += checked_reduction(spec, device)
    if spec.dimensions["optimizer"] == OWN_SHARDED:
        checks += checked_optimizer(spec, device)
    return checks


def _of_attention(spec: RunSpec, device: torch.device) -> list[dict[str, Any]]:
    attention, precision = spec.dimensions["attention"], spec.dimensions["precision"]
    length, sizes = spec.dimensions["context_length"], shape_of(vars(spec))
    width = sizes.d_model // sizes.num_heads
    checks = checked_attention(attention, spec.adapters, precision, [length], width, device)
    heads = sequences_per_gpu(spec.dimensions) * sizes.num_heads
    tried_attention(attention, spec.adapters, precision, (heads, length, width), device)
    return checks
