"""What the document of (e) says: sentences and tables."""

import pandas as pd

from cs336_model.ranges import ATTENTION_SCORES, FINAL_MATMUL, MASK_AND_SCALE
from kernel_tables.markdown import MarkdownTable, code, escaped
from profile_grid.quantities import count, interval, percent, rate, significant
from profile_grid.questions.e_attention.table import MATMULS, PARTS, SOFTMAX
from profile_grid.study.dimensions import MODE
from profile_grid.tables import wording
from profile_grid.tables.cells import MODEL_AND_CONTEXT, Part, lines_table, run_table
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import BACKWARD
from profile_grid.tables.per_pass import largest_by_run
from profile_grid.tables.pivoting import pivoted_texts
from profile_grid.tables.wording import Claim, configs_in_words, leaders, listed, median_note, of_all


def sentences(measured: Measured) -> list[Claim]:
    """(e) Softmax compared with the matrix multiplies of attention; the longest part; softmax in the backward pass."""
    if not measured.has_kernels:
        return [wording.no_kernels_sentence(measured)]
    rows, classes = measured.inference("attention"), measured.inference("forward_classes")
    if classes.empty:
        return [wording.NO_FORWARD_PASS]
    fused = wording.fused_sentence(measured, classes)
    missing = [f"`{part}`" for part in (ATTENTION_SCORES, SOFTMAX, FINAL_MATMUL) if part not in set(rows["part"])]
    if missing:
        unknown = Claim(
            "Not answered: the captures have no range {names}. Name the functions under `program.annotate` in"
            " `config.yaml`.", "missing", names=listed(missing),
        )  # fmt: skip
        return [unknown, *fused]
    softmax = rows[(rows["part"] == SOFTMAX) & rows["runtime_to_matmuls"].notna()]
    if softmax.empty:
        return [Claim("Not answered: no run has ranges for softmax and for both matrix multiplies.", "missing"), *fused]
    claims = [_ratio(softmax, measured), *wording.mode_note(measured), _longest(rows), *_backward(measured)]
    return [*claims, *_not_once_per_layer(rows), *fused]


def _ratio(softmax: pd.DataFrame, measured: Measured) -> Claim:
    """Time and FLOPs of softmax ÷ those of both matrix multiplies, in the runs where each of them has a range."""
    run_count = measured.inference("forward_classes")["run"].nunique()
    times, flops = softmax["runtime_to_matmuls"], softmax["flops_to_matmuls"].dropna()
    subject, attribute, median = "Softmax", " of attention", median_note(times, significant)
    if len(softmax) < run_count:
        subject = f"With a range of its own ({of_all(len(softmax), run_count, 'run')}), softmax"
        attribute = median = ""  # for a lead that is not too long
    return Claim(
        "{where} takes {times} times as long as both matrix multiplies{of} together{median}{flops}.",
        where=subject, of=attribute, times=interval(times, significant), median=median,
        flops=f", for {interval(flops, percent)} of their FLOPs" if len(flops) else "",
    )  # fmt: skip


def _backward(measured: Measured) -> list[Claim]:
    """The ratio of times in the backward pass of training, or that its parts cannot be distinguished."""
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
    """The part with the most time in each run. In runs that fuse several parts, only the others are compared."""
    parts = rows[rows["part"].isin(PARTS)]
    longest = leaders([code(part) for part in largest_by_run(parts, "gpu_time_ms")["part"]])
    some_are_fused = parts.groupby("run")["part"].nunique().min() < parts["part"].nunique()
    alone = " with kernels of its own" if some_are_fused else ""
    without = "" if MASK_AND_SCALE in set(parts["part"]) else f"; no range `{MASK_AND_SCALE}` was captured"
    text = "The longest part of attention{alone} is {longest}{without}."
    return Claim(text, alone=alone, longest=longest, without=without)


def _not_once_per_layer(rows: pd.DataFrame) -> list[Claim]:
    """In which configurations the range of softmax is not opened once per layer."""
    layers = rows["layers"].astype("float64")
    differing = rows[(rows["part"] == SOFTMAX) & layers.notna() & (rows["instances_per_pass"] != layers)]
    text = "`{softmax}` does not run once per layer in {places}: there a layer is one instance of the range."
    return [Claim(text, softmax=SOFTMAX, places=configs_in_words(differing))] if len(differing) else []


def tables(measured: Measured) -> list[Part]:
    """(e) GPU time of one layer's parts of attention, rates, and the two ratios of softmax to the matrix multiplies;
    FLOPs. Then times, rates and ratios of the backward pass of training, if captures distinguish its parts."""
    time, training = measured.words.time, measured.training_mode
    parts: list[Part] = []
    if not measured.inference("attention").empty:
        parts = [
            (f"In one layer: {time} by part, and FLOP/s reached by both matrix multiplies together and by softmax",
             _times_table(measured, "attention", measured.inference_mode)),
            ("FLOPs of one layer", _flops_table(measured)),
        ]  # fmt: skip
    if training and not measured.mode("attention_backward", training).empty:
        text = (
            f"In one layer of the backward pass, in training: {time} of the {measured.words.kernels} that compute the"
            " gradients of each part (4·B·H·S²·d_head FLOPs for a matrix multiply, 4·B·H·S² for softmax), rates and"
            " ratios"
        )
        parts.append((text, _times_table(measured, "attention_backward", training)))
    return parts


def _times_table(measured: Measured, name: str, mode: str) -> MarkdownTable:
    """One line per run of this mode: the time of each part, rates, and the ratios, from the table of this name."""
    rows = measured.mode(name, mode)
    parts = [part for part in PARTS if part in set(rows["part"])]
    headings = (*(f"{part}, µs" for part in parts), "matmuls", "softmax", "runtime ratio", "FLOP ratio")
    cells = {}
    for run, run_parts in rows.groupby("run", sort=False):
        by_part = run_parts.set_index("part")
        times = by_part["gpu_time_per_layer_us"].reindex(parts)
        matmuls = by_part[by_part.index.isin(MATMULS)]
        matmul_seconds = matmuls["gpu_time_per_layer_us"].sum() * 1e-6
        # None if they are fused with other parts, and have no kernels of their own
        matmul_rate = matmuls["flops_per_layer"].sum() / matmul_seconds if matmul_seconds else None
        softmax = by_part.reindex([SOFTMAX]).iloc[0]
        ratios = (softmax["runtime_to_matmuls"], softmax["flops_to_matmuls"])
        rates = (rate(matmul_rate), rate(softmax["flop_per_s"]))
        cells[run] = (*map(significant, times), *rates, *map(significant, ratios))
    return run_table(measured, headings, cells, mode)


def _flops_table(measured: Measured) -> MarkdownTable:
    """(e) FLOPs of one layer's parts of attention: formula, and number for every configuration with known sizes."""
    rows = measured.inference("attention")
    rows = rows[rows["part"].isin(PARTS) & rows["flops_per_layer"].notna()]
    formulas = rows.drop_duplicates("part").set_index("part")["flops_formula"]
    flops = pivoted_texts(rows, ["run"], "part", lambda row: count(row["flops_per_layer"]))
    headings = [f"{part}: {escaped(formula)}" for part, formula in formulas.items()]
    return lines_table(
        rows.drop_duplicates("run"), MODEL_AND_CONTEXT, headings, lambda row: flops.loc[row["run"], formulas.index],
        hidden=(MODE.key,),
    )  # fmt: skip
