"""Estimates for a run of attention alone: time and memory.

A context length whose tensors do not fit ends at once, as a result.
"""

from collections.abc import Mapping

from cs336_model.arithmetic.memory import ELEMENT_BYTES
from cs336_model.program.variants.values import EAGER, NOT_COMPILED
from profile_grid.gpu_peaks import Peaks

COMPILED = "compiled"
WRITTEN_OUT = (EAGER, "math", COMPILED)
FUSED_FORWARDS, FUSED_SHARE_OF_PEAK = 3.5, 0.25  # forward and backward; H200: the share that flash reaches in bf16
# An H200, widths 16 to 128, numbers of four and of two bytes: bytes per score that could be moved in the time of both
# passes at the peak bytes/s, and peak bytes per score: saved scores, and their gradients
BYTES_PER_SCORE = {EAGER: (290, 245), "math": (290, 245), COMPILED: (130, 40)}
PEAK_BYTES_PER_SCORE = {EAGER: (24, 24), "math": (24, 24), COMPILED: (12, 4)}
TENSORS = 10  # queries, keys, values, output, their gradients and copies: numbers per (token, width)
QUANTITIES, LEAST_CALLS = 4, 12  # of single calls: forward, both, and forward and backward for backward; three of each
PASS_S = 1e-3  # a forward and a backward pass that only launches


def needed_bytes(program: Mapping) -> int:
    """Bytes that the tensors of a run take at its longest context."""
    return bytes_at(program["dimensions"], max(program["context_lengths"]))


def seconds(program: Mapping, peaks: Peaks | None, memory_bytes: int | None) -> float:
    """Seconds of all passes of a run on a GPU with these peaks; 0 if they are unknown."""
    passes = 1 + program["warmup_passes"] + program["measured_passes"]
    bench_s = program.get("bench_s", 0)
    fitting = [
        length
        for length in program["context_lengths"]
        if memory_bytes is None or bytes_at(program["dimensions"], length) <= memory_bytes
    ]
    pass_s = [_pass_seconds(program["dimensions"], length, peaks) for length in fitting]
    return sum(passes * once_s + max(QUANTITIES * bench_s, LEAST_CALLS * once_s) * bool(bench_s) for once_s in pass_s)


def bytes_at(dimensions: Mapping, context_length: int) -> int:
    """Approximate bytes of the tensors of one cell at its fullest moment, in the backward pass."""
    numbers = TENSORS * dimensions["batch_size"] * context_length * dimensions["head_dim"]
    mask = context_length**2 if _variant(dimensions) in (EAGER, COMPILED) else 0
    score_bytes = _by_precision(PEAK_BYTES_PER_SCORE, dimensions) * _scores(dimensions, context_length)
    return numbers * ELEMENT_BYTES[dimensions["precision"]] + mask + score_bytes


def _pass_seconds(dimensions: Mapping, context_length: int, peaks: Peaks | None) -> float:
    """Seconds of a forward and a backward pass."""
    rate, scores = peaks and peaks.flop_per_s(dimensions["precision"]), _scores(dimensions, context_length)
    if not rate:
        return 0.0
    if _variant(dimensions) in WRITTEN_OUT:
        return max(PASS_S, _by_precision(BYTES_PER_SCORE, dimensions) * scores / peaks.memory_bytes_per_s)
    flops = FUSED_FORWARDS * 2 * dimensions["head_dim"] * scores
    return max(PASS_S, flops / (FUSED_SHARE_OF_PEAK * rate))


def _variant(dimensions: Mapping) -> str:
    return COMPILED if dimensions["compile"] != NOT_COMPILED else dimensions["attention"]


def _by_precision(table: Mapping[str, tuple[int, int]], dimensions: Mapping) -> int:
    """The number of a variant that is written out; 0 for a fused one, which has no scores in memory."""
    four_bytes, two_bytes = table.get(_variant(dimensions), (0, 0))
    return four_bytes if ELEMENT_BYTES[dimensions["precision"]] == 4 else two_bytes


def _scores(dimensions: Mapping, context_length: int) -> int:
    return dimensions["batch_size"] * context_length**2
