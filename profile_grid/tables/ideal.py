"""Least times by the data sheet of a device, with which measured times and speed-ups are compared."""

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from cs336_model import ranges
from cs336_model.arithmetic.flops import (
    BACKWARD_IN_FORWARDS,
    ModelShape,
    forward_bytes,
    forward_flops,
    matmul_flops,
    parameter_count,
    sequences_per_gpu,
)
from cs336_model.arithmetic.memory import ELEMENT_BYTES, NUMBER_BYTES
from profile_grid.gpu_peaks import Peaks, peaks_of
from profile_grid.tables import names

SHAPE_FIELDS = ("context_length", "vocab_size", "d_model", "num_layers", "num_heads", "d_ff")
# The matrix products of attention, each as large: scores and values in the forward pass; in the backward pass the
# scores once more, and the gradients of values, probabilities, queries and keys (Dao 2023, arXiv:2307.08691).
FORWARD_PRODUCTS, BACKWARD_PRODUCTS = 2, 5
ADAMW_MOVED = 7  # numbers per parameter: weight, gradient and two moments are read, and all but the gradient written
ATTENTION_PRODUCTS = (ranges.ATTENTION_SCORES, ranges.FINAL_MATMUL)


class LeastMs(NamedTuple):
    """Least milliseconds by a device's peak FLOP/s, and by its peak bytes/s; None if unknown or no limit."""

    by_flops: float | None
    by_bytes: float | None


def shape_of_run(run: Mapping) -> ModelShape | None:
    """The shape of the model on one GPU, from a row of `runs`; None for a custom model, whose FLOPs do not follow from
    its sizes."""
    if any(pd.isna(run.get(name)) for name in (*SHAPE_FIELDS, "batch_size", "gpus", "forward_flops")):
        return None
    shape = ModelShape(batch_size=int(sequences_per_gpu(run)), **{name: int(run[name]) for name in SHAPE_FIELDS})
    return shape if forward_flops(shape)[names.FORWARD] == int(run["forward_flops"]) else None


def ideal_times(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per run and phase with the least time in ms: `by_flops`, of the matrix products at the peak of the run's
    precision (NaN without any), and `by_bytes`, of moving their operands and results once, and in the optimizer what it
    reads and writes. Runs without known peaks or shape have no rows."""
    rows = [(run["run"], phase, *least) for run in runs.to_dict("records") for phase, least in _least_ms(run).items()]
    table = pd.DataFrame(rows, columns=["run", "phase", *LeastMs._fields])
    return table.astype(dict.fromkeys(LeastMs._fields, "float64"))


def with_ideal(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The table with `ideal_by_flops` and `ideal_by_bytes`: base_mean_ms ÷ the least time of the run and phase."""
    least = table[["run", "phase"]].merge(ideal_times(runs), on=["run", "phase"], how="left", validate="many_to_one")
    base_ms = table["base_mean_ms"].to_numpy("float64")
    return table.assign(**{f"ideal_{bound}": base_ms / least[bound].to_numpy() for bound in LeastMs._fields})


def least_ms_of_attention(
    peaks: Peaks | None, precision: str, batch_size: int, context_length: int, width: int
) -> LeastMs:
    """Least ms of one causal attention operator in the forward pass. `width` is that of all heads together.

    Both matrix products without masked scores take 2 B S (S + 1) width FLOPs; queries, keys, values and output, each
    moved once, are 4 B S width numbers.
    """
    rate = peaks.flop_per_s(precision) if peaks else None
    if rate is None:
        return LeastMs(None, None)
    moved_bytes = 4 * batch_size * context_length * width * ELEMENT_BYTES[precision]
    flops = causal_attention_flops(batch_size, context_length, width)
    return LeastMs(1e3 * flops / rate, 1e3 * moved_bytes / peaks.memory_bytes_per_s)


def causal_attention_flops(batch_size: int, context_length: int, width: int) -> int:
    """FLOPs of both matrix products of attention in the forward pass, without masked scores."""
    return 2 * batch_size * context_length * (context_length + 1) * width


def attention_flops(batch_size: int, context_length: int, width: int) -> dict[str, int]:
    """FLOPs of causal attention without masked scores, in the passes `forward`, `backward`, and `both`."""
    forward = causal_attention_flops(batch_size, context_length, width)
    backward = forward * BACKWARD_PRODUCTS // FORWARD_PRODUCTS
    return {"forward": forward, "backward": backward, "both": forward + backward}


def _least_ms(run: Mapping) -> dict[str, LeastMs]:
    """The least time of each phase of a row of `runs`, and of its step. Empty if peaks or shape are unknown."""
    peaks, shape = peaks_of(run.get("device_name")), shape_of_run(run)
    rate = peaks.flop_per_s(run["precision"]) if peaks else None
    if rate is None or shape is None:
        return {}
    flops, moved_bytes = forward_flops(shape)[names.FORWARD], _bytes_of_matmuls(shape, ELEMENT_BYTES[run["precision"]])
    forward = LeastMs(1e3 * flops / rate, 1e3 * moved_bytes / peaks.memory_bytes_per_s)
    phases = {names.FORWARD: forward}
    if run["mode"] != names.FORWARD:
        phases[names.BACKWARD] = LeastMs(*(BACKWARD_IN_FORWARDS * ms for ms in forward))
    if run["mode"] == "train_step":
        adamw_bytes = ADAMW_MOVED * NUMBER_BYTES[run["precision"]].number * parameter_count(shape)
        optimizer_ms = 1e3 * adamw_bytes / peaks.memory_bytes_per_s
        phases[names.OPTIMIZER] = LeastMs(None, optimizer_ms)
    by_flops, by_bytes = zip(*phases.values(), strict=True)
    return phases | {names.WHOLE_STEP: LeastMs(sum(ms or 0.0 for ms in by_flops), sum(by_bytes))}


def _bytes_of_matmuls(shape: ModelShape, element_bytes: int) -> int:
    """Least bytes of the matrix products of a forward pass, with everything else fused: attention reads queries, keys
    and values and writes its output, but no scores."""
    bytes_by_part = forward_bytes(shape, element_bytes)
    attention_bytes = 4 * shape.num_layers * shape.tokens * shape.d_model * element_bytes
    return attention_bytes + sum(bytes_by_part[part] for part in matmul_flops(shape) if part not in ATTENTION_PRODUCTS)


IDEAL_COLUMNS = """
    ideal_by_flops | float | | time at the default ÷ time of the matrix products at the maker's peak FLOP/s; empty if \
        unknown
    ideal_by_bytes | float | | time at the default ÷ time at the maker's peak bytes/s of what has to be moved; empty \
        if unknown
"""
