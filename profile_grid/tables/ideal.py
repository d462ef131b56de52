"""Least times by the data sheet of a device: the ideal for measured ratios."""

from collections.abc import Mapping

import pandas as pd

from cs336_model import ranges
from cs336_model.arithmetic.flops import (
    ModelShape,
    forward_bytes,
    forward_flops,
    matmul_flops,
    parameter_count,
    sequences_per_gpu,
)
from cs336_model.arithmetic.memory import ELEMENT_BYTES
from profile_grid import gpu_peaks, quantities
from profile_grid.tables import names

SHAPE = ("context_length", "vocab_size", "d_model", "num_layers", "num_heads", "d_ff")
BACKWARD_IN_FORWARDS = 2  # a matrix product has two in the backward pass, each as large
# The matrix products of attention, each as large: scores and values in the forward pass; in the backward pass the
# scores once more, and the gradients of values, probabilities, queries and keys (Dao 2023, arXiv:2307.08691).
FORWARD_PRODUCTS, BACKWARD_PRODUCTS = 2, 5
NUMBERS_OF_ADAMW = 7  # weight, gradient and two moments are read, all but the gradient written
OF_ATTENTION = (ranges.ATTENTION_SCORES, ranges.FINAL_MATMUL)
BOUNDS = ("by_flops", "by_bytes")


def shape_of_run(run: Mapping) -> ModelShape | None:
    """The shape of the model on one GPU, from a row of `runs`; None for other people's models, whose FLOPs are not
    those of the shapes."""
    if any(pd.isna(run.get(name)) for name in (*SHAPE, "batch_size", "gpus", "forward_flops")):
        return None
    shape = ModelShape(batch_size=int(sequences_per_gpu(run)), **{name: int(run[name]) for name in SHAPE})
    return shape if forward_flops(shape)[names.FORWARD] == int(run["forward_flops"]) else None


def peaks_of_device(device_name: object) -> gpu_peaks.Peaks | None:
    """The peaks of a device; None without a name or without known peaks."""
    return gpu_peaks.peaks_of(device_name if quantities.known(device_name) else None)


def ideal_times(runs: pd.DataFrame) -> pd.DataFrame:
    """Least time in ms by run and phase: `by_flops`, the matrix products at the peak of the run's precision (None
    without any), and `by_bytes`, their operands and results, and the optimizer's, moved once. No entry without peaks or
    a shape."""
    rows = [
        (run["run"], phase, *least)
        for run in runs.to_dict("records")
        for phase, least in _least_ms(run).items()
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["run", "phase", *BOUNDS]).astype(dict.fromkeys(BOUNDS, "float64"))


def with_ideal(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The table with `ideal_by_flops` and `ideal_by_bytes`: base_mean_ms ÷ the least time of the run and phase."""
    both = table[["run", "phase"]].merge(ideal_times(runs), on=["run", "phase"], how="left", validate="many_to_one")
    bounds = {f"ideal_{bound}": table["base_mean_ms"].to_numpy("float64") / both[bound].to_numpy() for bound in BOUNDS}
    return table.assign(**bounds)


def least_ms_of_attention(
    peaks: gpu_peaks.Peaks | None, precision: str, batch_size: int, context_length: int, width: int
) -> tuple[float | None, float | None]:
    """(by FLOP/s, by bytes/s): least ms of one causal attention operator in the forward pass; None without peaks.
    `width` is that of all heads together.

    Both matrix products without masked scores take 2 B S (S + 1) width FLOPs; queries, keys, values and output, each
    moved once, are 4 B S width numbers.
    """
    rate = peaks.flop_per_s(precision) if peaks else None
    if rate is None:
        return None, None
    moved = 4 * batch_size * context_length * width * ELEMENT_BYTES[precision]
    flops = causal_attention_flops(batch_size, context_length, width)
    return 1e3 * flops / rate, 1e3 * moved / peaks.memory_bytes_per_s


def causal_attention_flops(batch_size: int, context_length: int, width: int) -> int:
    """FLOPs of both matrix products of attention in the forward pass, without masked scores."""
    return 2 * batch_size * context_length * (context_length + 1) * width


def attention_flops(batch_size: int, context_length: int, width: int) -> dict[str, int]:
    """FLOPs of causal attention without masked scores: of the forward pass, of the backward pass, of both."""
    forward = causal_attention_flops(batch_size, context_length, width)
    backward = forward * BACKWARD_PRODUCTS // FORWARD_PRODUCTS
    return {"forward": forward, "backward": backward, "both": forward + backward}


def _least_ms(run: Mapping) -> dict[str, tuple[float | None, float]]:
    peaks, shape = peaks_of_device(run.get("device_name")), shape_of_run(run)
    rate = peaks.flop_per_s(run["precision"]) if peaks else None
    if rate is None or shape is None:
        return {}
    flops, moved = forward_flops(shape)[names.FORWARD], _bytes_of_matmuls(shape, ELEMENT_BYTES[run["precision"]])
    flops_ms, bytes_ms = 1e3 * flops / rate, 1e3 * moved / peaks.memory_bytes_per_s
    optimizer_ms = 1e3 * NUMBERS_OF_ADAMW * 4 * parameter_count(shape) / peaks.memory_bytes_per_s
    phases = {names.FORWARD: (flops_ms, bytes_ms)}
    if run["mode"] != names.FORWARD:
        phases[names.BACKWARD] = (BACKWARD_IN_FORWARDS * flops_ms, BACKWARD_IN_FORWARDS * bytes_ms)
    if run["mode"] == "train_step":
        phases[names.OPTIMIZER] = (None, optimizer_ms)
    sums = [sum(least[bound] or 0.0 for least in phases.values()) for bound in (0, 1)]
    return phases | {names.WHOLE_STEP: tuple(sums)}


def _bytes_of_matmuls(shape: ModelShape, element_bytes: int) -> int:
    """Least bytes of the matrix products of a forward pass, with everything else fused: attention reads queries, keys
    and values and writes its output, but no scores."""
    moved = forward_bytes(shape, element_bytes)
    of_attention = 4 * shape.num_layers * shape.tokens * shape.d_model * element_bytes
    return of_attention + sum(moved[part] for part in matmul_flops(shape) if part not in OF_ATTENTION)


IDEAL_COLUMNS = """
    ideal_by_flops | float | | time at the default ÷ time of the matrix products at the maker's peak FLOP/s; empty if \
        unknown
    ideal_by_bytes | float | | time at the default ÷ time at the maker's peak bytes/s of what has to be moved; empty \
        if unknown
"""
