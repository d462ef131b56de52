"""Times of single calls as in triton.testing.do_bench: CUDA events around each, and an L2 cache full of other data.

Calls are queued without waiting for the device. Before each call, a buffer larger than any L2 cache is written, which
also gives the host time to queue the call. Unlike do_bench, this runs a forward pass, which is not timed, before each
backward pass: compiled code, and code that overwrites what it saved, cannot run the same backward pass twice.
"""

from collections.abc import Callable
from itertools import starmap

import torch

from cs336_model.program.device import moment, seconds_between, synchronize

METHODS = {"cuda": "CUDA events, L2 cache overwritten before each call", "cpu": "timeit.default_timer"}
WARMUP_S = 0.025  # as do_bench
MIN_CALLS = 3  # also the number of first calls, from which the duration of a call is estimated
MAX_CALLS = 2000
BUFFER_BYTES = 256 * 2**20
Call = Callable[[], object]


def call_seconds(call: Call, total_s: float, device: torch.device, before: Call | None = None) -> list[float]:
    """The seconds of each call, after a warm-up. There are as many calls as take about `total_s` together, but at least
    MIN_CALLS and at most MAX_CALLS. `before` is called before each, and not timed."""
    buffer = torch.empty(BUFFER_BYTES, dtype=torch.int8, device=device) if device.type == "cuda" else None
    one_call_s = sum(timed_calls(MIN_CALLS, call, device, before, buffer)) / MIN_CALLS
    warmup_count, count = (min(int(duration_s / one_call_s), MAX_CALLS) for duration_s in (WARMUP_S, total_s))
    timed_calls(warmup_count, call, device, before, buffer)
    return timed_calls(max(count, MIN_CALLS), call, device, before, buffer)


def timed_calls(
    count: int, call: Call, device: torch.device, before: Call | None = None, buffer: torch.Tensor | None = None
) -> list[float]:
    """The seconds of each of `count` calls; before each, `before` is called and the buffer overwritten, if given."""
    bounds = []
    for _ in range(count):
        if before:
            before()
        if buffer is not None:
            buffer.zero_()
        start = moment(device)
        call()
        bounds.append((start, moment(device)))
    synchronize(device)
    return list(starmap(seconds_between, bounds))
