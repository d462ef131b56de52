"""The syntax of kernels' names: C++ as compilers and profilers write it."""

from __future__ import annotations

import re

_UNNAMED = re.compile(r"<unnamed>|\(anonymous namespace\)|\{anonymous\}")
_BEFORE = re.compile(r"^(?:void |static |(?:typename )?std::enable_if<.{0,300}?>::type )+")
_MANGLED = re.compile(r"_ZN?[KVL]*(\d.*)")


def identifier_and_arguments(name: str) -> tuple[str, str, str]:
    """(namespaces, own name, the rest from its template arguments or parameters on) of a function's full name.

    The own name is empty where the text is no function's.
    """
    plain = _BEFORE.sub("", _UNNAMED.sub("", name))
    mangled = _MANGLED.fullmatch(plain)
    if mangled:
        return _demangled(mangled[1])
    qualified = re.match(r"[^<(]*", plain)[0]
    spaces, _, own = qualified.rpartition("::")
    rest = plain[len(qualified) :]
    return (spaces.strip(":"), own, rest) if re.fullmatch(r"[A-Za-z_]\w*", own) else ("", "", name)


def arguments(text: str) -> list[str]:
    """The arguments of the template with which TEXT begins, `<float, (int)4>`; none where it begins with none."""
    if not text.startswith("<"):
        return []
    found, depth, start = [], 0, 1
    for place, character in enumerate(text):
        if character in "<([{":
            depth += 1
        elif character in ")]}" or (character == ">" and text[place - 1] != "-"):
            depth -= 1
        if depth == 0 or (depth == 1 and character == ","):
            found.append(text[start:place].strip())
            start = place + 1
        if depth == 0:
            break
    return [re.sub(r"^\((?:unsigned )?\w+\)(?=-?\d)", "", argument) for argument in found if argument]


def _demangled(text: str) -> tuple[str, str, str]:
    """The parts of a name as the linker knows it, from the length of its first identifier on."""
    words = []
    while found := re.match(r"\d{1,3}", text):
        length = int(found[0])
        words.append(text[len(found[0]) : len(found[0]) + length])
        text = text[len(found[0]) + length :]
    return "::".join(words[:-1]), words[-1], text
