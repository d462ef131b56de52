"""Decimal microseconds as integer nanoseconds, without rounding errors."""

import re
from decimal import Decimal, InvalidOperation

import numpy as np

# Fewer than 2^63 nanoseconds; all numbers of a text have one form. Possessive (*+): else, before a wrong number, many
# correct ones would be matched again in every other way.
WHOLE = re.compile(rb"(?:-?(?:[0-8]\d{15}|\d{1,15}) )*+")
THREE_DECIMALS = re.compile(rb"(?:-?(?:[0-8]\d{15}|\d{1,15})\.\d{3} )*+")
FRACTION = re.compile(rb"\.0*[1-9]")
LONGEST = 40  # characters of a number
LARGEST_NS = 1 << 63


def nanoseconds(written: bytes) -> np.ndarray:
    """The times, each followed by a space; more than three decimals are rounded. ValueError if one is not a time."""
    if WHOLE.fullmatch(written):
        return np.fromstring(written, np.int64, sep=" ") * 1000
    if THREE_DECIMALS.fullmatch(written):
        return np.fromstring(written.replace(b".", b""), np.int64, sep=" ")
    return np.array([_nanoseconds(text) for text in written.decode().split(" ")[:-1]], np.int64)


def has_fractions(written: bytes) -> bool:
    """Whether any time is not a multiple of a microsecond."""
    return FRACTION.search(written) is not None


def _nanoseconds(text: str) -> int:
    if not text:
        raise ValueError("an event has no time")
    whole, _, decimals = text.partition(".")
    if len(decimals) <= 3 and len(whole) < 16 and (whole + decimals).isdecimal():
        return int(whole + decimals.ljust(3, "0"))
    try:
        value = round(Decimal(text).scaleb(3)) if len(text) < LONGEST else LARGEST_NS
    except (InvalidOperation, OverflowError, ValueError):
        raise ValueError(f"{text[:LONGEST]!r} is no time") from None
    if abs(value) >= LARGEST_NS:
        raise ValueError(f"{text[:LONGEST]!r} is no time that a clock shows")
    return value
