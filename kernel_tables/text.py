"""What people read in a terminal."""

import math


def duration(ns: float) -> str:
    """A time with three digits and its unit: 1.23 s, 45.6 ms, 789 µs, 12 ns; "–" for NaN."""
    if math.isnan(ns):
        return "–"
    units = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))
    size, unit = next((pair for pair in units if abs(ns) >= pair[0]), units[-1])
    value = ns / size
    decimals = 0 if size == 1 or abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:,.{decimals}f} {unit}"


def percent(share: float) -> str:
    """A share of 1 as 45.6 %; "<0.1 %" for a small one that is not 0."""
    return f"{100 * share:.1f} %" if share == 0 or share >= 0.0005 else "<0.1 %"
