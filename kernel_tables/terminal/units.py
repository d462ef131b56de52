"""Times and shares as a person reads them."""

from __future__ import annotations

UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))
EIGHTHS = " ▏▎▍▌▋▊▉█"


def duration(ns: float) -> str:
    """A time with three digits and its unit: 1.23 s, 45.6 ms, 789 µs, 12 ns; "–" where there is none."""
    if ns != ns:
        return "–"
    size, unit = next((one for one in UNITS if abs(ns) >= one[0]), UNITS[-1])
    value = ns / size
    if unit == "ns":
        return f"{value:.0f} ns"
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:,.{digits}f} {unit}"


def percent(share: float) -> str:
    """A share of one: 45.6 %, and 0.1 % where it is less but something."""
    return f"{100 * share:.1f} %" if share == 0 or share >= 0.0005 else "<0.1 %"


def bar(share: float, width: int) -> str:
    """A bar of this width, full where the share is one, to an eighth of a character."""
    eighths = round(8 * width * min(max(share, 0), 1))
    full, rest = divmod(eighths, 8)
    return ("█" * full + EIGHTHS[rest].strip()).ljust(width)
