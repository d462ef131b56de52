"""The parts of a kernel's name, and words for types and numbers that occur in names of every origin."""

from __future__ import annotations

import re
from typing import NamedTuple


class Part(NamedTuple):
    """One part of a full name. `text` is what it gives to the short name: always where `told`, else only where short
    names would be alike without it; empty where it tells nothing apart."""

    key: str  # what the part is about, as a heading: tile, layout, type
    written: str  # as it stands in the full name
    meaning: str
    text: str = ""
    told: bool = False


TYPES = {
    "float": "fp32", "double": "fp64", "c10::Half": "fp16", "__half": "fp16", "c10::BFloat16": "bf16",
    "__nv_bfloat16": "bf16", "__hip_bfloat16": "bf16", "cutlass::bfloat16_t": "bf16", "cutlass::half_t": "fp16",
    "c10::Float8_e4m3fn": "fp8", "c10::Float8_e5m2": "fp8", "c10::complex<float>": "complex64", "long": "int64",
    "int": "int32", "short": "int16", "bool": "bool", "unsigned char": "uint8", "signed char": "int8",
}  # fmt: skip
_KNOWN = "|".join(map(re.escape, sorted(TYPES, key=len, reverse=True)))
_TYPE = re.compile(rf"\bOpaqueType<(\d+)|(?<![\w:])(?:{_KNOWN})(?!\w|::)")


def type_in(text: str) -> Part | None:
    """The first type of numbers in this text of C++, be it as PyTorch, NVIDIA or AMD call it; a type in brackets before
    a number, `(int)128`, is none."""
    found = _TYPE.search(re.sub(r"\((?:unsigned )?\w+\)(?=\d)", "", text))
    if found is None:
        return None
    if found[1]:
        return Part("type", f"{found[0]}>", f"on elements of {found[1]} bytes, of whatever type", f"{found[1]}-byte")
    text = TYPES[found[0]]
    return Part("type", found[0], f"on numbers of type {text}", text)
