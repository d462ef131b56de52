"""The longest context and the largest batch that fit into a GPU, estimated from the shapes."""

from collections.abc import Mapping
from typing import Any

from cs336_model.arithmetic.flops import ModelShape, sequences_per_gpu
from cs336_model.arithmetic.memory import OUTSIDE_TENSORS, estimated_peak_bytes
from profile_grid.largest.fitting import largest_fitting
from profile_grid.quantities import known

LONGEST_CONTEXT, LARGEST_BATCH = "predicted_longest_context", "predicted_largest_batch"
SIZES = ("vocab_size", "d_model", "num_layers", "num_heads", "d_ff")


def predicted(row: Mapping[str, Any], key: str) -> int | None:
    """The largest value of this dimension with which the run's estimated peak fits into its GPU, 0 if none does; None
    for other people's models and without a GPU."""
    if not (known(row["device_total_bytes"]) and known(row["estimated_peak_bytes"])):
        return None

    def fits(value: int) -> bool:
        dimensions = {name: row[name] for name in ("precision", "attention", "checkpoint", "mode")}
        sizes = {name: int(row[name]) for name in (*SIZES, "batch_size", "gpus", "context_length")} | {key: value}
        shape = ModelShape(
            batch_size=sequences_per_gpu(sizes), **{name: sizes[name] for name in (*SIZES, "context_length")}
        )
        needed = estimated_peak_bytes(shape, dimensions["mode"], dimensions)
        return needed + OUTSIDE_TENSORS <= row["device_total_bytes"]

    return largest_fitting(fits, int(row[key]))
