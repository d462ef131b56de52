"""The sentences of (e): softmax against the matrix multiplies of attention, runtime beside FLOPs."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import code
from profile_grid.quantities import interval, percent, ratio, significant
from profile_grid.questions.e_attention.table import MASK, PARTS, SCORES, SOFTMAX, VALUES
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import BACKWARD
from profile_grid.tables.wording import (
    NO_FORWARD_PASS,
    fused_sentence,
    leaders,
    listed,
    no_kernels_sentence,
    places,
    stand_in,
)

NO_FLOPS = "their FLOPs are not known, since no sizes named `d_model` and `num_heads` tell them"


def sentences(measured: Measured) -> list[str]:
    """(e) Softmax against the matrix multiplies of attention: runtime beside FLOPs."""
    if not measured.has_kernels:
        return [no_kernels_sentence(measured)]
    rows, fused = measured.inference("attention"), fused_sentence(measured, measured.inference("forward_classes"))
    if measured.inference("forward_classes").empty:
        return [NO_FORWARD_PASS]
    missing = [part for part in (SCORES, SOFTMAX, VALUES) if part not in set(rows["part"])]
    if missing:
        names = listed([f"`{part}`" for part in missing])
        return [
            f"Softmax and matrix multiplies inside attention cannot be told apart: the captures have no range {names}."
            " Name the functions under `program.annotate` in `config.yaml`.",
            *fused,
        ]
    softmax = rows[(rows["part"] == SOFTMAX) & rows["runtime_to_matmuls"].notna()]
    forward = [*stand_in(measured), *_ratio_sentences(softmax), *_longest_part(rows), *_layers_sentence(rows)]
    return [*forward, *_backward_sentence(measured), *fused]


def _ratio_sentences(softmax: pd.DataFrame) -> list[str]:
    if softmax.empty:
        return ["No run has ranges for softmax and for both matrix multiplies."]
    softmax = softmax[softmax["flops_to_matmuls"].notna()] if softmax["flops_to_matmuls"].notna().any() else softmax
    slower = softmax["runtime_to_matmuls"] / softmax["flops_to_matmuls"]
    times, flops = interval(softmax["runtime_to_matmuls"], ratio), interval(softmax["flops_to_matmuls"], percent)
    if slower.isna().all():
        return [f"Softmax takes {times} the time of the two matrix multiplies; {NO_FLOPS}."]
    amount = interval(slower, significant)
    if (slower > 1).all():
        compared = f"so one of its FLOPs takes {amount} times as long as one of theirs"
    elif (slower < 1).all():
        compared = f"so one of its FLOPs takes only {amount} of the time of one of theirs"
    else:
        compared = f"so one of its FLOPs takes {amount} times as long as one of theirs, by configuration"
    return [f"Softmax takes {times} the time of the two matrix multiplies with {flops} of their FLOPs, {compared}."]


def _backward_sentence(measured: Measured) -> list[str]:
    """The same ratio in the backward pass of training, or that nothing tells its parts apart."""
    classes = measured.tables["class_shares"]
    if measured.training_mode is None or BACKWARD not in set(classes["phase"]):
        return []
    rows = measured.mode("attention_backward", measured.training_mode)
    softmax = rows[(rows["part"] == SOFTMAX) & rows["runtime_to_matmuls"].notna()]
    if rows.empty:
        return [f"What they take in the backward pass cannot be said: no {measured.words.kernel} there has a part."]
    if softmax.empty:
        return []
    times, flops = interval(softmax["runtime_to_matmuls"], ratio), interval(softmax["flops_to_matmuls"], percent)
    of_flops = "" if softmax["flops_to_matmuls"].isna().all() else f", with {flops} of the FLOPs"
    return [f"In the backward pass it takes {times} the time of what differentiates them{of_flops}."]


def _longest_part(rows: pd.DataFrame) -> list[str]:
    parts = rows[rows["part"].isin(PARTS)].sort_values("gpu_time_ms", ascending=False, kind="stable")
    first = parts.drop_duplicates("run")
    sentence = f"The longest of the parts of attention is {leaders([code(part) for part in first['part']])}."
    return [sentence] if MASK in set(parts["part"]) else [sentence, f"No range `{MASK}` was captured."]


def _layers_sentence(rows: pd.DataFrame) -> list[str]:
    layers = rows["layers"].astype("float64")
    odd = rows[(rows["part"] == SOFTMAX) & layers.notna() & (rows["instances_per_pass"] != layers)]
    if odd.empty:
        return []
    return [f"`{SOFTMAX}` does not run once per layer in {places(odd)}: there a layer is one instance of the range."]
