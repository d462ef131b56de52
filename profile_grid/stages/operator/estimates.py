"""What a run of attention alone will take of a machine, before it runs: time and memory.

A context length whose tensors do not fit ends at once, as a result.
"""

from __future__ import annotations

from collections.abc import Mapping

from cs336_model.program.variants.values import EAGER, ELEMENT_BYTES, NOT_COMPILED
from profile_grid.gpu_peaks import Peaks

COMPILED = "compiled"
WRITTEN_OUT = (EAGER, "math", COMPILED)
FUSED_FORWARDS, FUSED_SHARE_OF_PEAK = 3.5, 0.25  # forward and backward; H200: flash in bf16 reaches so much
# An H200, widths 16 to 128, numbers of four and of two bytes: the bytes per score that the time of both passes would
# move at the peak bytes/s, and the most that are held at once: what is kept, and its gradients
BYTES_PER_SCORE = {EAGER: (290, 245), "math": (290, 245), COMPILED: (130, 40)}
HELD_PER_SCORE = {EAGER: (24, 24), "math": (24, 24), COMPILED: (12, 4)}
TENSORS = 10  # queries, keys, values, output, their gradients and copies: numbers per (token, width)
PASS_S = 1e-3  # a forward and a backward pass of nothing but launches


def needed_bytes(program: Mapping) -> int:
    """Bytes that the tensors of a run take at its longest context."""
    return bytes_at(program["dimensions"], max(program["context_lengths"]))


def seconds(program: Mapping, peaks: Peaks | None, memory_bytes: int | None) -> float:
    """Seconds of all passes of a run on a GPU with these peaks; 0 where they are not known."""
    passes = 1 + program["warmup_passes"] + program["measured_passes"]
    fitting = [
        length
        for length in program["context_lengths"]
        if memory_bytes is None or bytes_at(program["dimensions"], length) <= memory_bytes
    ]
    return sum(passes * _pass_seconds(program["dimensions"], length, peaks) for length in fitting)


def bytes_at(dimensions: Mapping, context_length: int) -> int:
    """Bytes of the tensors of one cell at its fullest moment, in the backward pass: about so much."""
    numbers = TENSORS * dimensions["batch_size"] * context_length * dimensions["head_dim"]
    mask = context_length**2 if _variant(dimensions) in (EAGER, COMPILED) else 0
    held = _by_precision(HELD_PER_SCORE, dimensions) * _scores(dimensions, context_length)
    return numbers * ELEMENT_BYTES[dimensions["precision"]] + mask + held


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
    """The number of a variant that is written out; 0 for a fused one, which holds no scores."""
    of_four, of_two = table.get(_variant(dimensions), (0, 0))
    return of_four if ELEMENT_BYTES[dimensions["precision"]] == 4 else of_two


def _scores(dimensions: Mapping, context_length: int) -> int:
    return dimensions["batch_size"] * context_length**2
