"""Numbers as text: with their unit, and with as many digits as their spread allows."""

import math
from collections.abc import Callable, Iterable

ABSENT = "–"
GIBIBYTE = 2**30
MEBIBYTE = 2**20
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def known(value) -> bool:
    """Whether there is a value: neither None nor NaN nor pandas' NA."""
    return value is not None and str(value) != "<NA>" and value == value


def with_spread(mean, std=None, unit: str = "") -> str:
    """A mean and its standard deviation: with_spread(12.345, 0.42, "ms") is "12.3 ± 0.4 ms".

    Both have the decimals with which the spread has one digit, two if the first is 1; without a spread, or with 0, the
    mean has three significant digits.
    """
    if not known(mean):
        return ABSENT
    suffix = f" {unit}" if unit else ""
    if not known(std) or std <= 0:
        return significant(mean) + suffix
    decimals = _decimals_of(std)
    return f"{mean:.{decimals}f} ± {std:.{decimals}f}{suffix}"


def significant(value, digits: int = 3) -> str:
    """A number with this many significant digits and no exponent: 1234 stays 1234, 0.012345 is 0.0123."""
    if not known(value):
        return ABSENT
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{value:.{decimals}f}".replace("-", "−")


def count(value) -> str:
    """A number of things: without decimals if it is an integer, else with one."""
    if not known(value):
        return ABSENT
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def counted(number, noun: str, plural: str | None = None) -> str:
    """A number, or the smallest to the largest of several, with its noun: "1 run", "2 runs", "1 to 9 runs"."""
    text = interval(number if isinstance(number, Iterable) else [number], count)
    return f"{text} {noun if text == '1' else plural or f'{noun}s'}"


def percent(share) -> str:
    """A share in percent: 0.3821 is "38.2 %"; a share above zero that would be rounded to 0.0 % is "< 0.1 %"."""
    if not known(share):
        return ABSENT
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:z.1f} %".replace("-", "−")


def points(difference) -> str:
    """A difference of two shares in percentage points, with its sign: -0.123 is "−12.3"."""
    if not known(difference):
        return ABSENT
    text = f"{100 * abs(difference):.1f}"
    if float(text) == 0:
        return "±0.0"
    return ("+" if difference > 0 else "−") + text


def ratio(value, std=None) -> str:
    """A ratio with its standard deviation: ratio(1.0423, 0.012) is "× 1.042 ± 0.012"."""
    return "× " + with_spread(value, std) if known(value) else ABSENT


def memory(size_bytes) -> str:
    """A size in GiB with one decimal, in MiB below one GiB: "18.0 GiB", "82 MiB"."""
    if not known(size_bytes):
        return "an unknown size"
    return f"{size_bytes / GIBIBYTE:.1f} GiB" if size_bytes >= GIBIBYTE else f"{size_bytes / MEBIBYTE:.0f} MiB"


def rate(flop_per_s) -> str:
    """A rate with its prefix: 2.41e13 is "24.1 TFLOP/s"."""
    if not known(flop_per_s):
        return ABSENT
    fitting = ((factor, prefix) for factor, prefix in PREFIXES if abs(flop_per_s) >= factor)
    factor, prefix = next(fitting, PREFIXES[-1])
    return f"{significant(flop_per_s / factor)} {prefix}FLOP/s"


def scientific(value) -> str:
    """A number of any size with two digits: 0.00123 is "1.2e-03"."""
    return f"{value:.1e}" if known(value) else ABSENT


def yes_or_no(value) -> str:
    """A boolean in words."""
    return ("yes" if value else "no") if known(value) else ABSENT


def interval(values: Iterable, as_text: Callable[[float], str]) -> str:
    """The smallest to the largest value: "3.1 ms to 27 ms"; one of them if both have the same text."""
    present = [value for value in values if known(value)]
    if not present:
        return ABSENT
    low, high = as_text(min(present)), as_text(max(present))
    return low if low == high else f"{low} to {high}"


def _decimals_of(std: float) -> int:
    leading, exponent = f"{std:.0e}".split("e")
    return min(6, max(0, -int(exponent) + (leading == "1")))
