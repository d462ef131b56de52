"""Calls all checks of a student's code before anything is timed."""

from typing import Any

import torch

from cs336_model.arithmetic.flops import shape_of
from cs336_model.program.adapters.attention import checks_of_attention, try_attention
from cs336_model.program.spec import RunSpec
from cs336_model.program.variants.values import OWN_ATTENTIONS


def checks_of_adapters(spec: RunSpec, device: torch.device) -> list[dict[str, Any]]:
    """The checks, as JSON has them; [] for a run without a student's code. Raises Wrong or Failed."""
    checks = []
    if spec.dimensions["attention"] in OWN_ATTENTIONS:
        checks += _checks_of_attention(spec, device)
    return checks


def _checks_of_attention(spec: RunSpec, device: torch.device) -> list[dict[str, Any]]:
    attention, precision = spec.dimensions["attention"], spec.dimensions["precision"]
    length, shape = spec.dimensions["context_length"], shape_of(vars(spec))
    checks = checks_of_attention(attention, spec.adapters, precision, [length], shape.d_head, device)
    # the checks use small shapes; the code may still fail in the shape of the run
    run_shape = (shape.batch_size * shape.num_heads, length, shape.d_head)
    try_attention(attention, spec.adapters, precision, run_shape, device)
    return checks
