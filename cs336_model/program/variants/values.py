"""The values that dimensions have in the measured program, and which of them exclude each other. Imports no torch."""

from collections.abc import Mapping
from typing import Any

from cs336_model.arithmetic.own_model import OWN_CONSTRUCTOR

FP32, TF32, BF16, BF16_WEIGHTS = PRECISIONS = ("fp32", "tf32", "bf16", "bf16-weights")
NOT_COMPILED, WHOLE_MODEL, ATTENTION_ALONE = COMPILES = ("off", "on", "attention")
EAGER, *FUSED = ATTENTIONS = ("eager", "math", "flash", "efficient", "cudnn")
NO_CHECKPOINT = 0  # else every so many blocks one is recomputed

ELEMENT_BYTES = {FP32: 4, TF32: 4, BF16: 2, BF16_WEIGHTS: 2}  # of an activation, where the precision takes effect
# The largest relative error of rounding one number: 2^-p for a significand of p bits. TF32 keeps 11 of them in the
# operands of a matrix product, bf16 keeps 8 (NVIDIA A100 white paper; IEEE 754 binary32 keeps 24).
UNIT_ROUNDOFF = {FP32: 2**-24, TF32: 2**-11, BF16: 2**-8, BF16_WEIGHTS: 2**-8}
PLAIN = {"precision": FP32, "compile": NOT_COMPILED, "attention": EAGER, "checkpoint": NO_CHECKPOINT}


def impossible(dimensions: Mapping[str, Any], constructor: str) -> str | None:
    """Why no machine can measure this combination, in one line; None where it is possible, or only a machine knows."""
    compiled, attention, checkpoint = (dimensions[key] for key in ("compile", "attention", "checkpoint"))
    if compiled != NOT_COMPILED and checkpoint:
        return (
            f"compile {compiled} with checkpoint {checkpoint}: a compiled graph holds no ranges, so what is recomputed"
            " could not be told apart; list them in products of their own"
        )
    inside = {"compile": compiled == ATTENTION_ALONE, "attention": attention != EAGER, "checkpoint": bool(checkpoint)}
    if constructor != OWN_CONSTRUCTOR and (wanted := [key for key, is_inside in inside.items() if is_inside]):
        return (
            f"{wanted[0]} {dimensions[wanted[0]]} with the model {constructor}: this changes a part of the model, and"
            f" is known for {OWN_CONSTRUCTOR} alone; leave it at its default"
        )
    return None
