"""The parts of a kernel's name, and the syntax and types of C++ that occur in names of every origin."""

import re
from typing import NamedTuple


class NamePart(NamedTuple):
    """One part of a kernel's name, as a short name shows it."""

    key: str  # what the part says: tile, layout, type
    text: str
    is_main: bool = False  # whether every short name has it; else only where short names would be equal


class FunctionName(NamedTuple):
    """The full name of a function, split; the identifier is empty if the text is not the name of a function."""

    namespaces: str
    identifier: str
    arguments: str  # of its template and its parameters, with all that follows


TYPES = {
    "float": "fp32", "double": "fp64", "c10::Half": "fp16", "__half": "fp16", "c10::BFloat16": "bf16",
    "__nv_bfloat16": "bf16", "__hip_bfloat16": "bf16", "cutlass::bfloat16_t": "bf16", "cutlass::half_t": "fp16",
    "c10::Float8_e4m3fn": "fp8", "c10::Float8_e5m2": "fp8", "c10::complex<float>": "complex64", "long": "int64",
    "int": "int32", "short": "int16", "bool": "bool", "unsigned char": "uint8", "signed char": "int8",
}  # fmt: skip
# What is left out of the name of a function: namespaces without a name, and the type that it returns.
_UNNAMED = re.compile(r"<unnamed>|\(anonymous namespace\)|\{anonymous\}")
_RETURN_TYPE = re.compile(r"^(?:void |static |(?:typename )?std::enable_if<.{0,300}?>::type )+")
_MANGLED = re.compile(r"_ZN?[KVL]*(\d.*)")  # Itanium: identifiers, each after its length
_TYPE_NAMES = "|".join(map(re.escape, sorted(TYPES, key=len, reverse=True)))
_TYPE = re.compile(rf"\bOpaqueType<(\d+)|(?<![\w:])(?:{_TYPE_NAMES})(?!\w|::)")


def type_in(text: str) -> NamePart | None:
    """The first type of numbers in this text of C++, as PyTorch, NVIDIA or AMD call it; None if there is none.

    A type in parentheses before a number, `(int)128`, does not count.
    """
    match = _TYPE.search(re.sub(r"\((?:unsigned )?\w+\)(?=\d)", "", text))
    if match is None:
        return None
    return NamePart("type", f"{match[1]}-byte" if match[1] else TYPES[match[0]])


def split_function_name(name: str) -> FunctionName:
    """The parts of the full name of a function, mangled or not."""
    plain = _RETURN_TYPE.sub("", _UNNAMED.sub("", name))
    if mangled := _MANGLED.fullmatch(plain):
        return _demangled(mangled[1])
    qualified = re.match(r"[^<(]*", plain)[0]
    namespaces, _, identifier = qualified.rpartition("::")
    if not re.fullmatch(r"[A-Za-z_]\w*", identifier):
        return FunctionName("", "", name)
    return FunctionName(namespaces.strip(":"), identifier, plain[len(qualified) :])


def template_arguments(text: str) -> list[str]:
    """The arguments of the template with which `text` begins, without types before numbers: float and 4 for
    `<float, (int)4>`. Empty if it begins with no template."""
    if not text.startswith("<"):
        return []
    parts, depth, start = [], 0, 1
    for index, character in enumerate(text):
        if character in "<([{":
            depth += 1
        elif character in ")]}" or (character == ">" and text[index - 1] != "-"):
            depth -= 1
        if depth == 0 or (depth == 1 and character == ","):
            parts.append(text[start:index].strip())
            start = index + 1
        if depth == 0:
            break
    return [re.sub(r"^\((?:unsigned )?\w+\)(?=-?\d)", "", argument) for argument in parts if argument]


def _demangled(text: str) -> FunctionName:
    """The parts of a mangled name; `text` is that name from the length of its first identifier on."""
    identifiers = []
    while digits := re.match(r"\d{1,3}", text):
        first, length = len(digits[0]), int(digits[0])
        identifiers.append(text[first : first + length])
        text = text[first + length :]
    return FunctionName("::".join(identifiers[:-1]), identifiers[-1], text)
