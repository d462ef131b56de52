"""Times, sizes and shares as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence

UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))
SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
EIGHTHS = " ▏▎▍▌▋▊▉█"


def duration(ns: float) -> str:
    """A time with three digits and its unit: 1.23 s, 45.6 ms, 789 µs, 12 ns; "–" where there is none."""
    if ns != ns:
        return "–"
    return _in_unit(ns, UNITS)


def size(count: float) -> str:
    """So many bytes with three digits and their unit: 1.23 GiB, 45.6 MiB, 12 B; "–" where it is not known."""
    return "–" if count != count else _in_unit(count, SIZES)


def _in_unit(amount: float, units: Sequence[tuple[float, str]]) -> str:
    one, unit = next((pair for pair in units if abs(amount) >= pair[0]), units[-1])
    value = amount / one
    decimals = 0 if one == 1 or abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:,.{decimals}f} {unit}"


def percent(share: float) -> str:
    """A share of one: 45.6 %, and 0.1 % where it is less but something."""
    return f"{100 * share:.1f} %" if share == 0 or share >= 0.0005 else "<0.1 %"


def bar(share: float, width: int) -> str:
    """A bar of this width, full where the share is one, to an eighth of a character."""
    eighths = round(8 * width * min(max(share, 0), 1))
    full, rest = divmod(eighths, 8)
    return ("█" * full + EIGHTHS[rest].strip()).ljust(width)
