"""Short, readable names of kernels, different for different kernels of a table; what `kernel-tables names` prints."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count, zip_longest
from textwrap import wrap
from typing import NamedTuple

from kernel_tables.clean_text import visible
from kernel_tables.kernel_classes.categories import UNKNOWN, rule_for
from kernel_tables.kernel_names import pytorch
from kernel_tables.kernel_names.matrix import matrix_parts
from kernel_tables.kernel_names.parts import NamePart

MAX_READ = 4000  # characters of a full name: a limit of the time for any name
MAX_CHARACTERS = 40  # of a short name; parts that are added to tell equal ones apart do not count
BEGIN_CHARACTERS = 18  # before LEFT_OUT, in short names that differ only in their ends
MAX_TO_WORD = 18  # characters from the start of a word to the first difference: if more, the end begins within the word
LEFT_OUT = "…"
FIRST_KEYS = ("library", "operands", "access", "type")  # the parts with these keys are added before others
FIELDS = {  # what a rule for classes searches, in words
    "operators": "the names of ATen operators",
    "own_name": "the kernel's own name, in lower case",
    "arguments": "its template arguments and parameters, in lower case",
    "full_name": "the full name",
}
READERS = (
    pytorch.memory_operation_parts, pytorch.operator_parts, pytorch.triton_parts, pytorch.nccl_parts, matrix_parts,
    pytorch.pytorch_parts, pytorch.function_parts,
)  # fmt: skip


@lru_cache(maxsize=4096)
def parts_of(name: str) -> tuple[NamePart, ...]:
    """The parts of a full name; none if its form is unknown."""
    return next((parts for read in READERS if (parts := read(name[:MAX_READ]))), ())


def short_name(name: str) -> str:
    """The short name of a single kernel: "sgemm 256×128 nn", "elementwise mul"."""
    return _truncated(_main_text(name))


def _truncated(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + LEFT_OUT


def _main_text(name: str) -> str:
    """The text of the name's main parts, not truncated; the name itself if it has none."""
    text = " ".join(part.text for part in parts_of(name) if part.is_main)
    return visible(" ".join((text or name).split()))  # on one line


def short_names(names: Iterable[str], fixed: Mapping[str, str] | None = None) -> dict[str, str]:
    """A short name by full name, all different. Equal ones are told apart by their ends, then by other parts, and what
    is still equal by numbers.

    `fixed` are short names by full name that stay as they are; they are in the result, too.
    """
    fixed = dict(fixed or {})
    names = list(dict.fromkeys(names))
    short: dict[str, str] = {}  # of `fixed`, too, so that others show how they differ from these
    for text, group in _names_by(short_name, [*fixed, *names]).items():
        short |= _with_different_ends(text, group)
    for text, group in _names_by(short.get, short).items():
        short |= _with_different_parts(text, group)
    return _numbered({name: short[name] for name in names} | fixed, fixed)


def _names_by(text_of: Callable[[str], str], names: Iterable[str]) -> dict[str, list[str]]:
    """The names by the text that `text_of` returns for them, in order."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(text_of(name), []).append(name)
    return groups


def _with_different_ends(short: str, names: list[str]) -> dict[str, str]:
    """The short names of `names`, which are all `short` so far. If that is truncated, each shows its beginning, and its
    end from where they differ on."""
    texts = {name: _main_text(name) for name in names}
    if len(short) < MAX_CHARACTERS or len(set(texts.values())) == 1:
        return dict.fromkeys(names, short)
    characters_by_index = enumerate(zip_longest(*texts.values()))
    difference = next(index for index, characters in characters_by_index if len(set(characters)) > 1)
    return {name: _with_end_from(difference, text) for name, text in texts.items()}


def _with_end_from(index: int, text: str) -> str:
    """The beginning of the text, and its end from the word at this index on."""
    word_start = text.rfind("_", 0, index) + 1
    end_start = word_start if index - word_start < MAX_TO_WORD else index
    return _truncated(f"{text[:BEGIN_CHARACTERS]}{LEFT_OUT}{text[end_start:]}")


def _with_different_parts(short: str, names: list[str]) -> dict[str, str]:
    """The short names of `names`, which are all `short`: with the first other part in which they differ, and for those
    that are then still equal with a further part, and so on."""
    if len(names) == 1:
        return {names[0]: short}
    texts = {  # by name and key of a part
        name: {part.key: visible(part.text) for part in parts_of(name) if not part.is_main} for name in names
    }
    other_keys = (key for parts in texts.values() for key in parts)
    for key in dict.fromkeys((*FIRST_KEYS, *other_keys)):
        groups = _names_by(lambda name, key=key: texts[name].get(key, ""), names)
        if len(groups) > 1:
            longer: dict[str, str] = {}
            for text, group in groups.items():
                longer |= _with_different_parts(f"{short} {text}".strip(), group)
            return longer
    return dict.fromkeys(names, short)


def _numbered(short: dict[str, str], fixed: Mapping[str, str]) -> dict[str, str]:
    """The short names, which include `fixed`. Those still equal get numbers in the order of the full names."""
    used, numbered = set(fixed.values()), dict(fixed)
    groups = _names_by(short.get, sorted(short.keys() - fixed.keys()))
    for text, group in sorted(groups.items()):
        with_numbers = (f"{text} #{number}" for number in count(1))  # the names of the group share these numbers
        for name in group:
            if len(group) == 1 and text not in used:
                numbered[name] = text
            else:
                # Not the text of another group either, whose names come later.
                numbered[name] = next(free for free in with_numbers if free not in used and free not in groups)
            used.add(numbered[name])
    return {name: numbered[name] for name in short}


class NameFact(NamedTuple):
    about: str  # short name, class or rule
    value: str
    reason: str


def name_facts(name: str, extra_rules: Sequence[Mapping[str, str]] = ()) -> list[NameFact]:
    """A kernel's short name, its class, and what the rule that decided the class searches."""
    rule = rule_for(name, extra_rules)
    kernel_class, reason = (rule.kernel_class, rule.reason) if rule else (UNKNOWN, "no rule fits; --class adds one")
    facts = [
        NameFact("short name", short_name(name), "more is added where another kernel of a table would have the same"),
        NameFact("class", kernel_class, reason),
    ]
    for field, pattern in rule.patterns if rule else ():
        facts.append(NameFact("rule", " ".join(pattern.split()), f"searched in {FIELDS[field]}"))
    return facts


def as_text(rows: Sequence[NameFact], width: int) -> str:
    """The facts, each with its reason indented below it."""
    lines = []
    for row in rows:
        first, *more = _lines(row.value, width - 12)
        lines += [f"{row.about:<10}  {first}", *(" " * 12 + line for line in [*more, *_lines(row.reason, width - 12)])]
    return "\n".join(lines) + "\n"


def _lines(text: str, width: int) -> list[str]:
    """The text in lines of this width, at least one; long words are broken."""
    return wrap(visible(text), max(width, 30), break_on_hyphens=False) or [""]
