"""Times, sizes and shares as people read them, and their headings with and without a GPU."""

import math
from collections.abc import Sequence

TIME_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))
SIZE_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
EIGHTHS = " ▏▎▍▌▋▊▉█"
CPU_ONLY_NOTE = "no GPU was used: a kernel is an outermost operator of PyTorch, and its time is CPU time"
GRAPHS_NOTE = (
    "replays of CUDA graphs were recorded as one activity each, without their kernels; nsys profile"
    " --cuda-graph-trace=node records these"
)


def duration(ns: float) -> str:
    """A time with three digits and its unit: 1.23 s, 45.6 ms, 789 µs, 12 ns; "–" for NaN."""
    return _in_unit(ns, TIME_UNITS)


def size(byte_count: float) -> str:
    """Bytes with three digits and their unit: 1.23 GiB, 45.6 MiB, 12 B; "–" for NaN."""
    return _in_unit(byte_count, SIZE_UNITS)


def _in_unit(amount: float, units: Sequence[tuple[float, str]]) -> str:
    if math.isnan(amount):
        return "–"
    size_of_unit, unit = next((pair for pair in units if abs(amount) >= pair[0]), units[-1])
    value = amount / size_of_unit
    decimals = 0 if size_of_unit == 1 or abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:,.{decimals}f} {unit}"


def percent(share: float) -> str:
    """A share of 1 as 45.6 %; "<0.1 %" for a small one that is not 0."""
    return f"{100 * share:.1f} %" if share == 0 or share >= 0.0005 else "<0.1 %"


def bar(share: float, width: int) -> str:
    """A bar of this width for a share of 1, to an eighth of a character."""
    eighths = round(8 * width * min(max(share, 0), 1))
    full, rest = divmod(eighths, 8)
    return ("█" * full + EIGHTHS[rest].strip()).ljust(width)


def time_heading(is_cpu_only: bool) -> str:
    """The heading of a column with the times of activities."""
    return "operators' time" if is_cpu_only else "GPU time"


def device_phrase(is_cpu_only: bool) -> str:
    """Where the activities ran, in words."""
    return "on the processor" if is_cpu_only else "on the device"
