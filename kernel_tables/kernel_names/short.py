"""Short names of kernels: what a person can read, different for different kernels of one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import zip_longest

from kernel_tables.clean_text import visible
from kernel_tables.kernel_names.matrix import matrix_parts
from kernel_tables.kernel_names.others import (
    function_parts,
    memory_operation_parts,
    nccl_parts,
    operator_parts,
    triton_parts,
)
from kernel_tables.kernel_names.parts import NamePart
from kernel_tables.kernel_names.pytorch import pytorch_parts

MOST_READ = 4000  # characters of a full name: a bound in time, whatever it holds
MOST_CHARACTERS = 40  # before what tells it apart from others
HEAD = 18  # of them, before a mark, where only the ends of two names differ
LEFT_OUT = "…"
FIRST = ("library", "operands", "access", "type")  # what tells most stands before other parts
READERS = (
    memory_operation_parts, operator_parts, triton_parts, nccl_parts, matrix_parts, pytorch_parts, function_parts,
)  # fmt: skip


@lru_cache(maxsize=4096)
def parts_of(name: str) -> tuple[NamePart, ...]:
    """What the parts of a full name mean; none where it is no name of a kernel that is known."""
    return next((parts for read in READERS if (parts := read(name[:MOST_READ]))), ())


def short_name(name: str) -> str:
    """The short name of a kernel that stands alone: "sgemm 256×128 nn", "elementwise mul"."""
    text = _told(name)
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + LEFT_OUT


def _told(name: str) -> str:
    """The parts that are always told, of any length."""
    told = " ".join(part.text for part in parts_of(name) if part.always_in_short_name and part.text)
    return visible(" ".join((told or name).split()))


def short_names(names: Iterable[str], taken: Mapping[str, str] | None = None) -> dict[str, str]:
    """A short name by full name, no two alike: what kernels differ in is added where they would be, else a number.

    `taken` are names that others have already; they stay as they are, and no other name is given them.
    """
    taken = dict(taken or {})
    alike: dict[str, list[str]] = {}
    names = list(dict.fromkeys(names))
    for name, text in _cut_apart([*taken, *names]).items():
        alike.setdefault(text, []).append(name)
    found = {name: short for text, group in alike.items() for name, short in _told_apart(text, group).items()}
    return _numbered({name: found[name] for name in names} | taken, taken)


def _cut_apart(names: Iterable[str]) -> dict[str, str]:
    """The short name of each alone; of those that are cut to the same, the end shows where they begin to differ."""
    cut: dict[str, list[str]] = {}
    for name in names:
        cut.setdefault(short_name(name), []).append(name)
    found = {}
    for short, group in cut.items():
        told = {name: _told(name) for name in group}
        differ = len(short) == MOST_CHARACTERS and len(set(told.values())) > 1
        begin = _first_difference(told.values()) if differ else 0
        found |= {name: _with_end_from(begin, text) if differ else short for name, text in told.items()}
    return found


def _first_difference(texts: Iterable[str]) -> int:
    """The first place at which not all texts, of which some differ, have the same character."""
    columns = zip_longest(*texts)
    return next(place for place, characters in enumerate(columns) if len(set(characters)) > 1)


def _with_end_from(place: int, text: str) -> str:
    """The text with the word at this place, cut before it and behind it."""
    word = text.rfind("_", 0, place) + 1
    begin = word if place - word < HEAD else place
    kept = f"{text[:HEAD]}{LEFT_OUT}{text[begin:]}"
    return kept if len(kept) <= MOST_CHARACTERS else kept[: MOST_CHARACTERS - 1] + LEFT_OUT


def _told_apart(text: str, names: list[str]) -> dict[str, str]:
    """Names that begin alike, with the first of their parts in which they differ, and so on."""
    if len(names) == 1:
        return {names[0]: text}
    told = {name: _more_texts(name) for name in names}
    for key in dict.fromkeys((*FIRST, *(key for texts in told.values() for key in texts))):
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(told[name].get(key, ""), []).append(name)
        if len(groups) > 1:
            return {
                name: short
                for more, group in groups.items()
                for name, short in _told_apart(f"{text} {more}".strip(), group).items()
            }
    return dict.fromkeys(names, text)


def _more_texts(name: str) -> dict[str, str]:
    """By key: what the parts add that are not always told."""
    return {part.key: visible(part.text) for part in parts_of(name) if part.text and not part.always_in_short_name}


def _numbered(found: dict[str, str], taken: Mapping[str, str]) -> dict[str, str]:
    """The names, with numbers in the order of the full names where some are still alike."""
    used, numbered = set(taken.values()), dict(taken)
    alike: dict[str, list[str]] = {}
    for name in sorted(found.keys() - taken.keys()):
        alike.setdefault(found[name], []).append(name)
    for text, group in sorted(alike.items()):
        if len(group) == 1 and text not in used:
            numbered[group[0]] = text
            used.add(text)
            continue
        number = 0
        for name in group:
            number += 1
            while f"{text} #{number}" in used or f"{text} #{number}" in alike:
                number += 1
            numbered[name] = f"{text} #{number}"
            used.add(numbered[name])
    return {name: numbered[name] for name in found}
