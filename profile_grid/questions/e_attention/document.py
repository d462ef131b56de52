"""What the document of (e) says: sentences and tables."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import MarkdownTable, code, escaped
from profile_grid.quantities import count, interval, percent, rate, ratio, significant
from profile_grid.questions.e_attention.table import MASK, MATMULS, PARTS, SCORES, SOFTMAX, VALUES
from profile_grid.study.dimensions import MODE, keys_without
from profile_grid.tables.apart import shown_dimensions
from profile_grid.tables.cells import LED_BY, headings_of, leading_cells, run_table
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


def attention_table(measured: Measured) -> MarkdownTable:
    """(e) GPU time of one layer's parts of attention, rates, and the two ratios of softmax to the matrix multiplies."""
    return _table_of(measured, "attention", measured.inference_mode)


def backward_table(measured: Measured) -> MarkdownTable | None:
    """(e) The same in the backward pass of training; None where no capture tells its parts apart."""
    mode = measured.training_mode
    if mode is None or measured.mode("attention_backward", mode).empty:
        return None
    return _table_of(measured, "attention_backward", mode)


def _table_of(measured: Measured, name: str, mode: str) -> MarkdownTable:
    rows = measured.mode(name, mode)
    parts = [part for part in PARTS if part in set(rows["part"])]
    headings = (*(f"{part}, µs" for part in parts), "matmuls", "softmax", "runtime ratio", "FLOP ratio")
    cells = {}
    for run, own in rows.groupby("run", sort=False):
        by_part = own.set_index("part")
        times = [significant(by_part["gpu_time_per_layer_us"].get(part)) for part in parts]
        matmuls = by_part[by_part.index.isin(MATMULS)]
        seconds = matmuls["gpu_time_per_layer_us"].sum() * 1e-6
        rate_of_matmuls = matmuls["flops_per_layer"].sum() / seconds if seconds else None  # fused attention has none
        softmax = by_part.loc[SOFTMAX] if SOFTMAX in by_part.index else {}
        cells[run] = (
            *times,
            rate(rate_of_matmuls),
            rate(softmax.get("flop_per_s")),
            significant(softmax.get("runtime_to_matmuls")),
            significant(softmax.get("flops_to_matmuls")),
        )
    return run_table(measured, headings, cells, mode)


def flops_table(measured: Measured) -> MarkdownTable | None:
    """(e) FLOPs of one layer's parts of attention: the formula, and the number for every configuration; None where the
    sizes that they follow from are not known."""
    rows = measured.inference("attention")
    rows = rows[rows["part"].isin(PARTS) & rows["flops_per_layer"].notna()]
    if rows.empty:
        return None
    formulas = rows.drop_duplicates("part").set_index("part")["flops_formula"]
    shown, lines = shown_dimensions(rows, LED_BY, hidden=(MODE.key,)), []
    for _, own in rows.groupby(keys_without(MODE.key), sort=False):
        flops = own.set_index("part")["flops_per_layer"]
        cells = (count(flops.get(part)) for part in formulas.index)
        lines.append((*leading_cells(own.iloc[0].to_dict(), shown), *cells))
    headings = (f"{part}: {escaped(formula)}" for part, formula in formulas.items())
    return MarkdownTable((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))
