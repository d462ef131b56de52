"""Estimates of time and memory for a run of attention alone.

A context length whose tensors do not fit takes no time: it ends at once, with the result "out of memory".
"""

from collections.abc import Mapping

from cs336_model.arithmetic.memory import ELEMENT_BYTES, MATH
from cs336_model.program.variants.values import EAGER, NOT_COMPILED
from profile_grid.gpu_peaks import Peaks

COMPILED = "compiled"
# Measured on an H200 with head sizes 16 to 128, by the bytes of an element and by variant, for variants that have all
# scores in memory. First: how many bytes per score the GPU could move in the time of both passes. Second: bytes per
# score at the peak, for saved scores and their gradients.
BYTES_PER_SCORE = {4: {EAGER: 290, MATH: 290, COMPILED: 130}, 2: {EAGER: 245, MATH: 245, COMPILED: 40}}
PEAK_BYTES_PER_SCORE = {4: {EAGER: 24, MATH: 24, COMPILED: 12}, 2: {EAGER: 24, MATH: 24, COMPILED: 4}}
# for fused attention, which has no scores in memory
FUSED_FORWARDS = 3.5  # FLOPs of both passes ÷ FLOPs of the forward pass
FUSED_SHARE_OF_PEAK = 0.25  # the share of the peak FLOP/s that flash reaches on an H200 in bf16
TENSORS = 10  # of size batch × context × head size: queries, keys, values, output, their gradients and copies
# Single calls are timed of the forward pass, of both passes, and of the backward pass. The latter counts twice, since
# each call needs a forward pass first.
BENCHES = 4
MIN_BENCH_CALLS = 3 * BENCHES
MIN_PASSES_S = 1e-3  # seconds of a forward and a backward pass, at least: the time to launch them


def needed_bytes(program: Mapping) -> int:
    """Bytes that the tensors of a run take at its longest context."""
    return _peak_bytes(program["dimensions"], max(program["context_lengths"]))


def seconds(program: Mapping, peaks: Peaks | None, memory_bytes: int | None) -> float:
    """Seconds of all passes at contexts that fit into `memory_bytes` (None: all); 0 without the peaks of the GPU."""
    dimensions, bench_s = program["dimensions"], program.get("bench_s", 0)
    passes = 1 + program["warmup_passes"] + program["measured_passes"]  # 1: the pass that compiles
    total_s = 0.0
    for context_length in program["context_lengths"]:
        if memory_bytes is None or _peak_bytes(dimensions, context_length) <= memory_bytes:
            pass_s = _pass_seconds(dimensions, context_length, peaks)
            single_calls_s = max(BENCHES * bench_s, MIN_BENCH_CALLS * pass_s) if bench_s else 0.0
            total_s += passes * pass_s + single_calls_s
    return total_s


def _peak_bytes(dimensions: Mapping, context_length: int) -> int:
    """Approximate bytes of the tensors of one cell at its peak, in the backward pass."""
    elements = TENSORS * dimensions["batch_size"] * context_length * dimensions["head_dim"]
    mask_bytes = context_length**2 if _variant(dimensions) in (EAGER, COMPILED) else 0
    score_bytes = _per_score(PEAK_BYTES_PER_SCORE, dimensions) * _scores(dimensions, context_length)
    return elements * ELEMENT_BYTES[dimensions["precision"]] + mask_bytes + score_bytes


def _pass_seconds(dimensions: Mapping, context_length: int, peaks: Peaks | None) -> float:
    """Seconds of a forward and a backward pass; 0 without a known peak."""
    flop_per_s, scores = peaks and peaks.flop_per_s(dimensions["precision"]), _scores(dimensions, context_length)
    if not flop_per_s:
        return 0.0
    if bytes_per_score := _per_score(BYTES_PER_SCORE, dimensions):
        return max(MIN_PASSES_S, bytes_per_score * scores / peaks.memory_bytes_per_s)
    flops = FUSED_FORWARDS * 2 * dimensions["head_dim"] * scores
    return max(MIN_PASSES_S, flops / (FUSED_SHARE_OF_PEAK * flop_per_s))


def _variant(dimensions: Mapping) -> str:
    """COMPILED, or the kind of attention if it is not compiled."""
    return COMPILED if dimensions["compile"] != NOT_COMPILED else dimensions["attention"]


def _per_score(byte_counts: Mapping[int, Mapping[str, int]], dimensions: Mapping) -> int:
    """The bytes per score for the variant and the precision of a run; 0 for fused attention."""
    return byte_counts[ELEMENT_BYTES[dimensions["precision"]]].get(_variant(dimensions), 0)


def _scores(dimensions: Mapping, context_length: int) -> int:
    """The number of scores of a batch."""
    return dimensions["batch_size"] * context_length**2
