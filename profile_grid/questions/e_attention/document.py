"""What the document of (e) says: sentences and tables."""

import pandas as pd

from kernel_tables.markdown import MarkdownTable, code, escaped
from profile_grid.quantities import count, interval, percent, rate, significant
from profile_grid.questions.e_attention.table import MASK, MATMULS, PARTS, SCORES, SOFTMAX, VALUES
from profile_grid.study.dimensions import MODE, keys_without
from profile_grid.tables.cells import LEADING_KEYS, Part, lines_table, run_table
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import BACKWARD
from profile_grid.tables.wording import (
    NO_FORWARD_PASS,
    Claim,
    configs_in_words,
    fused_sentence,
    leaders,
    listed,
    mode_note,
    no_kernels_sentence,
    of_all,
)

KEY_COLUMNS = keys_without(MODE.key)


def sentences(measured: Measured) -> list[str]:
    """(e) Softmax against the matrix multiplies of attention: runtime and FLOPs."""
    if not measured.has_kernels:
        return [no_kernels_sentence(measured)]
    rows, fused = measured.inference("attention"), fused_sentence(measured, measured.inference("forward_classes"))
    if measured.inference("forward_classes").empty:
        return [NO_FORWARD_PASS]
    missing = [f"`{part}`" for part in (SCORES, SOFTMAX, VALUES) if part not in set(rows["part"])]
    if missing:
        unknown = Claim(
            "Not answered: the captures have no range {names}. Name the functions under `program.annotate` in"
            " `config.yaml`.", "missing", names=listed(missing),
        )  # fmt: skip
        return [unknown, *fused]
    softmax = rows[(rows["part"] == SOFTMAX) & rows["runtime_to_matmuls"].notna()]
    if softmax.empty:
        return [Claim("Not answered: no run has ranges for softmax and for both matrix multiplies.", "missing"), *fused]
    claims = [_ratio(softmax, measured), *mode_note(measured), _longest(rows), *_backward(measured), *_layers(rows)]
    return [*claims, *fused]


def _ratio(softmax: pd.DataFrame, measured: Measured) -> Claim:
    """The ratio, of the runs that compute softmax and both matrix multiplies in kernels of their own."""
    some, every = len(softmax), measured.inference("forward_classes")["run"].nunique()
    where = f"Where softmax has its own kernels ({of_all(some, every, 'run')}), it" if some < every else "Softmax"
    times, flops = softmax["runtime_to_matmuls"], softmax["flops_to_matmuls"].dropna()
    median = f" (median {significant(times.median())})" if len(times) > 2 and some == every else ""
    return Claim(
        "{where} takes {times} times as long as both matrix multiplies{of} together{median}{flops}.",
        where=where, of=" of attention" if some == every else "",
        times=interval(times, significant), median=median,
        flops=f", for {interval(flops, percent)} of their FLOPs" if len(flops) else "",
    )  # fmt: skip


def _backward(measured: Measured) -> list[Claim]:
    """The same ratio in the backward pass of training, or that its parts cannot be distinguished."""
    if measured.training_mode is None or BACKWARD not in set(measured.tables["class_shares"]["phase"]):
        return []
    rows = measured.mode("attention_backward", measured.training_mode)
    if rows.empty:
        return [
            Claim("Backward times are missing: these captures have no ranges of parts in the backward pass.", "missing")
        ]
    times = rows.loc[rows["part"] == SOFTMAX, "runtime_to_matmuls"].dropna()
    text = "In the backward pass, softmax's gradients take {times} times as long as those of both matrix multiplies."
    return [Claim(text, times=interval(times, significant))] if len(times) else []


def _longest(rows: pd.DataFrame) -> Claim:
    parts = rows[rows["part"].isin(PARTS)].sort_values("gpu_time_ms", ascending=False, kind="stable")
    longest = leaders([code(part) for part in parts.drop_duplicates("run")["part"]])
    fused = parts.groupby("run")["part"].nunique().min() < parts["part"].nunique()
    alone = " with kernels of its own" if fused else ""
    without = "" if MASK in set(parts["part"]) else f"; no range `{MASK}` was captured"
    text = "The longest part of attention{alone} is {longest}{without}."
    return Claim(text, alone=alone, longest=longest, without=without)


def _layers(rows: pd.DataFrame) -> list[Claim]:
    layers = rows["layers"].astype("float64")
    odd = rows[(rows["part"] == SOFTMAX) & layers.notna() & (rows["instances_per_pass"] != layers)]
    text = "`{softmax}` does not run once per layer in {places}: there a layer is one instance of the range."
    return [Claim(text, softmax=SOFTMAX, places=configs_in_words(odd))] if len(odd) else []


def tables(measured: Measured) -> list[Part]:
    """(e) GPU time of one layer's parts of attention, rates, and the two ratios of softmax to the matrix multiplies;
    FLOPs; the same times in the backward pass of training, where captures distinguish its parts."""
    time, training = measured.words.time, measured.training_mode
    parts: list[Part] = []
    if not measured.inference("attention").empty:
        parts = [
            (f"In one layer: {time} by part, and FLOP/s reached by both matrix multiplies together and by softmax",
             _table_of(measured, "attention", measured.inference_mode)),
            ("FLOPs of one layer", _flops_table(measured)),
        ]  # fmt: skip
    if training and not measured.mode("attention_backward", training).empty:
        text = (
            f"In one layer of the backward pass, in training: {time} of the {measured.words.kernels} that differentiate"
            " each part (4·B·H·S²·d_head FLOPs for a matrix multiply, 4·B·H·S² for softmax), rates and ratios"
        )
        parts.append((text, _table_of(measured, "attention_backward", training)))
    return parts


def _table_of(measured: Measured, name: str, mode: str) -> MarkdownTable:
    rows = measured.mode(name, mode)
    parts = [part for part in PARTS if part in set(rows["part"])]
    headings = (*(f"{part}, µs" for part in parts), "matmuls", "softmax", "runtime ratio", "FLOP ratio")
    cells = {}
    for run, run_rows in rows.groupby("run", sort=False):
        by_part = run_rows.set_index("part")
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


def _flops_table(measured: Measured) -> MarkdownTable:
    """(e) FLOPs of one layer's parts of attention: formula, and number for every configuration with known sizes."""
    rows = measured.inference("attention")
    rows = rows[rows["part"].isin(PARTS) & rows["flops_per_layer"].notna()]
    formulas = rows.drop_duplicates("part").set_index("part")["flops_formula"]
    flops = rows.set_index([*KEY_COLUMNS, "part"])["flops_per_layer"]

    def cells(row: dict) -> list[str]:
        return [count(flops.get((*(row[key] for key in KEY_COLUMNS), part))) for part in formulas.index]

    headings = [f"{part}: {escaped(formula)}" for part, formula in formulas.items()]
    return lines_table(rows.drop_duplicates(KEY_COLUMNS), LEADING_KEYS, headings, cells, hidden=(MODE.key,))
