"""Estimates for a run of attention alone: time and memory.

A context length whose tensors do not fit ends at once, as a result.
"""

from collections.abc import Mapping

from cs336_model.arithmetic.memory import ELEMENT_BYTES
from cs336_model.program.variants.values import EAGER, NOT_COMPILED
from profile_grid.gpu_peaks import Peaks

COMPILED = "compiled"
WRITTEN_OUT = (EAGER, "math", COMPILED)
# of fused attention: FLOPs of both passes ÷ those of the forward pass; the share of the peak that flash reaches on an
# H200 in bf16
FUSED_FORWARDS, FUSED_SHARE_OF_PEAK = 3.5, 0.25
# Measured on an H200 with head sizes 16 to 128, in fp32 and in types of two bytes: bytes per score that the GPU could
# move in the time of both passes, and bytes per score at the peak (saved scores and their gradients)
BYTES_PER_SCORE = {EAGER: (290, 245), "math": (290, 245), COMPILED: (130, 40)}
PEAK_BYTES_PER_SCORE = {EAGER: (24, 24), "math": (24, 24), COMPILED: (12, 4)}
TENSORS = 10  # of batch × context × head size: queries, keys, values, output, their gradients and copies
# forward pass, both, and backward pass, which counts twice: each call of it needs a forward pass first
BENCHES = 4
MIN_BENCH_CALLS = 3 * BENCHES
MIN_PASSES_S = 1e-3  # of a forward and a backward pass: the time to launch them


def needed_bytes(program: Mapping) -> int:
    """Bytes that the tensors of a run take at its longest context."""
    return _peak_bytes(program["dimensions"], max(program["context_lengths"]))


def seconds(program: Mapping, peaks: Peaks | None, memory_bytes: int | None) -> float:
    """Seconds of all passes of a run on a GPU with these peaks (0 if unknown), at contexts that fit into its memory."""
    dimensions, bench_s = program["dimensions"], program.get("bench_s", 0)
    passes = 1 + program["warmup_passes"] + program["measured_passes"]
    total_s = 0.0
    for context_length in program["context_lengths"]:
        if memory_bytes is None or _peak_bytes(dimensions, context_length) <= memory_bytes:
            pass_s = _pass_seconds(dimensions, context_length, peaks)
            total_s += passes * pass_s + (max(BENCHES * bench_s, MIN_BENCH_CALLS * pass_s) if bench_s else 0.0)
    return total_s


def _peak_bytes(dimensions: Mapping, context_length: int) -> int:
    """Approximate bytes of the tensors of one cell at its peak, in the backward pass."""
    elements = TENSORS * dimensions["batch_size"] * context_length * dimensions["head_dim"]
    mask_bytes = context_length**2 if _variant(dimensions) in (EAGER, COMPILED) else 0
    score_bytes = _by_precision(PEAK_BYTES_PER_SCORE, dimensions) * _scores(dimensions, context_length)
    return elements * ELEMENT_BYTES[dimensions["precision"]] + mask_bytes + score_bytes


def _pass_seconds(dimensions: Mapping, context_length: int, peaks: Peaks | None) -> float:
    """Seconds of a forward and a backward pass; 0 without a known peak."""
    rate, scores = peaks and peaks.flop_per_s(dimensions["precision"]), _scores(dimensions, context_length)
    if not rate:
        return 0.0
    if _variant(dimensions) in WRITTEN_OUT:
        return max(MIN_PASSES_S, _by_precision(BYTES_PER_SCORE, dimensions) * scores / peaks.memory_bytes_per_s)
    flops = FUSED_FORWARDS * 2 * dimensions["head_dim"] * scores
    return max(MIN_PASSES_S, flops / (FUSED_SHARE_OF_PEAK * rate))


def _variant(dimensions: Mapping) -> str:
    return COMPILED if dimensions["compile"] != NOT_COMPILED else dimensions["attention"]


def _by_precision(table: Mapping[str, tuple[int, int]], dimensions: Mapping) -> int:
    """The entry of the table for this variant and precision; 0 for a fused one, which has no scores in memory."""
    four_bytes, two_bytes = table.get(_variant(dimensions), (0, 0))
    return four_bytes if ELEMENT_BYTES[dimensions["precision"]] == 4 else two_bytes


def _scores(dimensions: Mapping, context_length: int) -> int:
    return dimensions["batch_size"] * context_length**2
