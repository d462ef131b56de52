"""The tables of (e): GPU time and floating-point operations of the parts of attention, forward and backward."""

from typing import NamedTuple

import pandas as pd

from cs336_model import ranges
from cs336_model.arithmetic.flops import sequences_per_gpu
from kernel_tables.attribution.path_text import innermost
from profile_grid.study.dimensions import LEADING
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables.class_tables import CLASS_SHARES, FORWARD_CLASSES
from profile_grid.tables.model_parts import has_range
from profile_grid.tables.names import BACKWARD, FORWARD, RECOMPUTATION
from profile_grid.tables.per_pass import Merged, as_floats, in_order_of, per_pass

SOFTMAX = ranges.SOFTMAX
PARTS = (ranges.ATTENTION_SCORES, ranges.MASK_AND_SCALE, SOFTMAX, ranges.FINAL_MATMUL)
MATMULS = (ranges.ATTENTION_SCORES, ranges.FINAL_MATMUL)


class Formula(NamedTuple):
    """FLOPs of one layer, which computes all B·H·S² scores: for each, `per_score_and_width` · d_head + `per_score`."""

    text: str
    per_score_and_width: int = 0
    per_score: int = 0


FORMULAS = {
    ranges.ATTENTION_SCORES: Formula("2·B·H·S²·d_head", per_score_and_width=2),
    ranges.MASK_AND_SCALE: Formula("B·H·S² (the scale)", per_score=1),
    SOFTMAX: Formula("5·B·H·S²", per_score=5),
    ranges.FINAL_MATMUL: Formula("2·B·H·S²·d_head", per_score_and_width=2),
    ranges.SCALED_DOT_PRODUCT_ATTENTION: Formula("4·B·H·S²·d_head + 6·B·H·S²", per_score_and_width=4, per_score=6),
}
BACKWARD_FORMULAS = {  # a gradient for each operand of a product; of P = softmax(S): dS = P (dP - sum of P dP)
    ranges.ATTENTION_SCORES: Formula("4·B·H·S²·d_head", per_score_and_width=4),
    ranges.MASK_AND_SCALE: Formula("B·H·S² (the scale)", per_score=1),
    SOFTMAX: Formula("4·B·H·S²", per_score=4),
    ranges.FINAL_MATMUL: Formula("4·B·H·S²·d_head", per_score_and_width=4),
    ranges.SCALED_DOT_PRODUCT_ATTENTION: Formula("8·B·H·S²·d_head + 5·B·H·S²", per_score_and_width=8, per_score=5),
}


def attention(merged: Merged) -> pd.DataFrame:
    """One row per run and part of attention with a range in the forward pass.

    `gpu_time_ms` is per pass, `gpu_time_per_layer_us` per instance of the range, FLOPs are of one layer. The two ratios
    compare a part with both matrix multiplies together.
    """
    return _attention_in_phase(FORWARD, FORMULAS, merged)


def attention_backward(merged: Merged) -> pd.DataFrame:
    """One row per run and part of attention with a range in the backward pass, with the columns of `attention`.
    Recomputation is left out."""
    return _attention_in_phase(BACKWARD, BACKWARD_FORMULAS, merged)


def _attention_in_phase(phase: str, formulas: dict[str, Formula], merged: Merged) -> pd.DataFrame:
    """The parts of attention in a phase: times from the captures, FLOPs from the shapes, and their ratios to those of
    both matrix multiplies."""
    table = pd.concat([_part_times(part, phase, merged) for part in formulas], ignore_index=True)
    runs = merged["runs"]
    names = ("batch_size", "gpus", "num_heads", "d_model", "num_layers", "context_length")
    run_sizes = runs.set_index("run")
    sizes = pd.DataFrame({name: as_floats(table["run"].map(run_sizes[name])) for name in names})
    scores = sequences_per_gpu(sizes) * sizes["num_heads"] * sizes["context_length"] ** 2
    d_head = sizes["d_model"] // sizes["num_heads"]
    per_score_and_width = as_floats(table["part"].map({part: formulas[part].per_score_and_width for part in formulas}))
    per_score = as_floats(table["part"].map({part: formulas[part].per_score for part in formulas}))
    table["layers"] = sizes["num_layers"]
    table["flops_per_layer"] = scores * (per_score_and_width * d_head + per_score)
    table["flops_formula"] = table["part"].map({part: formulas[part].text for part in formulas})
    table["flop_per_s"] = table["flops_per_layer"] / (table["gpu_time_per_layer_us"] * 1e-6)
    table["runtime_to_matmuls"] = table["gpu_time_ms"] / _sum_of_matmuls(table, "gpu_time_ms")
    table["flops_to_matmuls"] = table["flops_per_layer"] / _sum_of_matmuls(table, "flops_per_layer")
    return in_order_of(table, runs["run"])


def _part_times(part: str, phase: str, merged: Merged) -> pd.DataFrame:
    """One row per run: GPU time of a range in a phase, nested ranges included, and its instances in a forward pass."""
    kernels, range_times, steps = merged.kernels, merged["ranges"], merged.captured_steps
    part_kernels = kernels[(kernels["phase"] == phase) & _contains(kernels["range"], part)]
    table = per_pass(part_kernels.assign(part=part), ["part"], steps).drop(columns="total_ns")
    # Instances are those of the forward pass: in the backward pass, a compiled layer may open the range several times.
    part_ranges = range_times[(range_times["phase"] == FORWARD) & _contains(range_times["range"], part)]
    part_ranges = part_ranges[part_ranges["range"].map(innermost) == part]
    instances = part_ranges.groupby("run", observed=True)["instances"].sum() / steps
    table["instances_per_pass"] = as_floats(table["run"].map(instances))
    table["gpu_time_per_layer_us"] = table["gpu_time_ms"] * 1e3 / table["instances_per_pass"]
    return table[[*LEADING, "part", "instances_per_pass", "gpu_time_ms", "gpu_time_std_ms", "gpu_time_per_layer_us"]]


def _contains(paths: pd.Series, part: str) -> pd.Series:
    """Whether each of these paths contains the part, outside recomputation."""
    return has_range(paths, part) & ~has_range(paths, RECOMPUTATION)


def _sum_of_matmuls(table: pd.DataFrame, column: str) -> pd.Series:
    """Per row, the sum of the column over both matrix multiplies of its run; NaN if the run lacks the range of one."""
    matmuls = table[table["part"].isin(MATMULS)].groupby("run")[column]
    return as_floats(table["run"].map(matmuls.sum(min_count=len(MATMULS))))


COLUMNS = columns("""
    part | text | | name of the range, including nested ranges
    instances_per_pass | float | | times the range is opened in one forward pass: once per layer
    gpu_time_ms | float | ms | GPU time in one pass
    gpu_time_std_ms | float | ms | its standard deviation between the measured steps
    gpu_time_per_layer_us | float | µs | gpu_time_ms ÷ instances_per_pass
    layers | float | | layers of the model
    flops_per_layer | float | FLOP | operations of one layer, from the shapes
    flops_formula | text | | their formula: B batch, H heads, S context, d_head size of the head
    flop_per_s | float | FLOP/s | flops_per_layer ÷ gpu_time_per_layer_us
    runtime_to_matmuls | float | | gpu_time_ms ÷ that of both matrix multiplies
    flops_to_matmuls | float | | flops_per_layer ÷ that of both matrix multiplies
""")
TABLES = (
    TableSpec("attention", "(e) One row per run and range of attention in the forward pass", COLUMNS, make=attention),
    TableSpec(
        "attention_backward",
        "(e) One row per run and range of attention in the backward pass, without recomputation",
        COLUMNS,
        make=attention_backward,
    ),
    FORWARD_CLASSES,
    CLASS_SHARES,
)
PAGE_TABLES = (
    PageTable("attention", "Attention by part"),
    PageTable("attention_backward", "Attention by part, backward pass"),
)
