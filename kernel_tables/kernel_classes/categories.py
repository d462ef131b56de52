"""Classes of kernels by their full names: gemm, attention, elementwise/copy, ...; the rules are in class_rules.toml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kernel_tables.errors import TraceError
from kernel_tables.kernel_classes.linear_search import found_in, unusable
from kernel_tables.markdown import code, compact_table

UNKNOWN = "unknown"
HINT = "put a backslash before a bracket, star or plus that is part of the name"
NOT_LINEAR = "RE2, which searches here, has no lookahead, lookbehind or backreference: do without"
HINTS = {"invalid perl operator": NOT_LINEAR, "invalid escape sequence": NOT_LINEAR}
PATH_TO_RULES = Path(__file__).with_name("class_rules.toml")


class Parts(NamedTuple):
    """What rules look at in one name; a part that the name does not have is empty."""

    operators: str  # of an ATen operator: its name without aten::
    own_name: str  # of a kernel: up to its template arguments or parameters, in lower case
    arguments: str  # of a kernel: the rest, in lower case
    full_name: str


@dataclass(frozen=True)
class Rule:
    """Names in which every one of `patterns` is found, each in its part, are of class `kernel_class`."""

    kernel_class: str
    patterns: tuple[tuple[str, str], ...]  # (one of Parts' fields, regular expression)
    reason: str
    example: str = ""


def classify(names: Iterable[str], extra_rules: Sequence[Mapping[str, str]] = ()) -> list[str]:
    """The class of each name, in order; each distinct name is looked at once.

    `extra_rules` are {"class": ..., "pattern": ...}, searched in the full name before the built-in rules.
    Raises TraceError for one that cannot be used (users_rules).
    """
    names = list(names)
    distinct = list(dict.fromkeys(names))
    rules = _first_fits(distinct, (*users_rules(extra_rules), *built_in_rules()))
    class_of = {name: _class(rule) for name, rule in zip(distinct, rules, strict=True)}
    return [class_of[name] for name in names]


def rule_for(name: str, extra_rules: Sequence[Mapping[str, str]] = ()) -> Rule | None:
    """The rule that gives `name` its class; None where the class is unknown."""
    return _first_fits([name], (*users_rules(extra_rules), *built_in_rules()))[0]


def family(kernel_class: str) -> str:
    """What stands before the slash: elementwise for elementwise/copy."""
    return kernel_class.partition("/")[0]


def as_markdown() -> str:
    """The built-in rules in their order, as a Markdown table: class, what a name must hold, reason, example."""
    rows = [
        (str(number), code(rule.kernel_class), _in_words(rule), rule.reason, code(rule.example, in_table=True))
        for number, rule in enumerate(built_in_rules(), start=1)
    ]
    return compact_table(("rule", "class", "what a name must hold", "reason", "example"), rows, right=[0])


@cache
def built_in_rules() -> tuple[Rule, ...]:
    """The rules of class_rules.toml in their order; read on first use, so that importing this module costs nothing."""
    import tomllib

    return tuple(_built_in_rule(written) for written in tomllib.loads(PATH_TO_RULES.read_text("utf-8"))["rule"])


def users_rules(written_rules: Sequence[Mapping[str, str]]) -> tuple[Rule, ...]:
    """One's own rules; TraceError names the first that cannot be used, and why.

    Needs no capture and, where there are no rules, nothing heavy: call it as soon as they are known.
    """
    return tuple(_users_rule(written, number) for number, written in enumerate(written_rules, start=1))


def _built_in_rule(written: Mapping[str, str]) -> Rule:
    patterns = tuple((part, " ".join(written[part].split())) for part in Parts._fields if part in written)
    return Rule(written["class"], patterns, written["reason"], written["example"])


def _users_rule(written: Mapping[str, str], number: int) -> Rule:
    where = f"kernel_classes, rule {number}"
    if not isinstance(written, Mapping) or not all(_is_text(written.get(key)) for key in ("class", "pattern")):
        raise TraceError(
            f"{where}: {written!r} lacks a class or a pattern; write {{class: gemm, pattern: 'my_kernel.*'}}"
        )
    pattern = written["pattern"]
    reason = unusable(pattern)
    if reason:
        raise TraceError(
            f"{where}: the pattern {pattern!r} cannot be used ({reason}); {HINTS.get(reason.partition(':')[0], HINT)}"
        )
    return Rule(written["class"], (("full_name", pattern),), "a rule of config.yaml")


# A kernel's own name ends at its template arguments or parameters. Unnamed namespaces have brackets of their own, and
# a few names begin with a return type, std::enable_if<...>::type, that holds anything.
_OWN_NAME = re.compile(r"(?:std::enable_if<.*?>::type )?(?:[^<(]|<unnamed>|\(anonymous namespace\))*")


def _parts(name: str) -> Parts:
    if name.startswith("aten::"):
        return Parts(name.removeprefix("aten::"), "", "", name)
    own_name = _OWN_NAME.match(name).group()
    return Parts("", own_name.lower(), name[len(own_name) :].lower(), name)


def _first_fits(names: list[str], rules: Iterable[Rule]) -> list[Rule | None]:
    """The first rule that fits each name, None where none does; a rule looks at the names that none before it fits."""
    parts = [_parts(name) for name in names]
    found: list[Rule | None] = [None] * len(names)
    left = list(range(len(names)))
    for rule in rules:
        fitting = set(_fitting(rule, parts, left))
        for position in fitting:
            found[position] = rule
        left = [position for position in left if position not in fitting]
        if not left:
            break
    return found


def _fitting(rule: Rule, parts: list[Parts], positions: list[int]) -> list[int]:
    """Those of the positions at which every pattern of the rule is found; what a name does not have is never fitted."""
    for part, pattern in rule.patterns:
        positions = [position for position in positions if getattr(parts[position], part)]
        texts = [getattr(parts[position], part) for position in positions]
        is_found = found_in(_expression(part, pattern), texts)
        positions = [position for position, found in zip(positions, is_found, strict=True) if found]
    return positions


def _expression(part: str, pattern: str) -> str:
    if part == "operators":
        return rf"^_?(?:{'|'.join(pattern.split())})(?:_backward(?:_data)?)?_?$"
    return pattern


def _class(rule: Rule | None) -> str:
    return rule.kernel_class if rule else UNKNOWN


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _in_words(rule: Rule) -> str:
    return ", ".join(f"{part.replace('_', ' ')} {code(pattern, in_table=True)}" for part, pattern in rule.patterns)
