"""Classes of kernels by their full names: gemm, attention, elementwise/copy, ...; the rules are in class_rules.toml."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kernel_tables.errors import TraceError

UNKNOWN = "unknown"
ESCAPE_HINT = "put a backslash before a bracket, star or plus that is part of the name"
RE2_HINT = "RE2, which searches here, has no lookahead, lookbehind or backreference: do without"
HINTS = {"invalid perl operator": RE2_HINT, "invalid escape sequence": RE2_HINT}  # by the beginning of RE2's message
RULES_PATH = Path(__file__).with_name("class_rules.toml")
# cuBLAS and CUTLASS name the instruction (tensorop, wmma, hmma, tensor16x8x8) or the operands (tf32f32, bf16bf16).
# nvjet is cuBLAS's generator for Hopper and Blackwell, all of whose kernels run on tensor cores.
ON_TENSOR_CORES = r"tensorop|tensor\d+x\d+|[wh]g?mma|tf32|bf16bf16|nvjet"
IN_FP32 = r"sgemm|simt|ffma|f32f32_f32f32"


class KernelNameFields(NamedTuple):
    """The fields of a full name in which rules search. Of the first three, operators only have the first, kernels only
    the other two; what they do not have is empty."""

    operators: str  # the name of an ATen operator without aten::
    own_name: str  # the name of a kernel up to its template arguments or parameters, in lower case
    arguments: str  # the rest of the name of a kernel, in lower case
    full_name: str


@dataclass(frozen=True)
class KernelClassRule:
    """A name is of class `kernel_class` if all `patterns` are found in it, each in its field."""

    kernel_class: str
    patterns: tuple[tuple[str, str], ...]  # (field of KernelNameFields, regular expression)
    reason: str
    example: str = ""


def classify(names: Iterable[str], extra_rules: Sequence[Mapping[str, str]] = ()) -> list[str]:
    """The class of each name, in order.

    `extra_rules` are {"class": ..., "pattern": ...}. Their patterns are searched in the full name, and they are tried
    before the built-in rules. Raises TraceError for one that cannot be used.
    """
    names = list(names)
    distinct = list(dict.fromkeys(names))
    rules = _first_fitting_rules(distinct, (*users_rules(extra_rules), *built_in_rules()))
    class_of = {name: rule.kernel_class if rule else UNKNOWN for name, rule in zip(distinct, rules, strict=True)}
    return [class_of[name] for name in names]


def rule_for(name: str, extra_rules: Sequence[Mapping[str, str]] = ()) -> KernelClassRule | None:
    """The rule that determines the class of `name`; None if the class is unknown."""
    return _first_fitting_rules([name], (*users_rules(extra_rules), *built_in_rules()))[0]


def family(kernel_class: str) -> str:
    """The class without its subclass: elementwise for elementwise/copy."""
    return kernel_class.partition("/")[0]


@cache
def built_in_rules() -> tuple[KernelClassRule, ...]:
    """The rules of class_rules.toml in order; read on first use, so that importing this module costs nothing."""
    import tomllib

    rules = []
    for entry in tomllib.loads(RULES_PATH.read_text("utf-8"))["rule"]:
        patterns = tuple(
            (field, " ".join(entry[field].split())) for field in KernelNameFields._fields if field in entry
        )
        rules.append(KernelClassRule(entry["class"], patterns, entry["reason"], entry["example"]))
    return tuple(rules)


def users_rules(entries: Sequence[Mapping[str, str]]) -> tuple[KernelClassRule, ...]:
    """The user's rules. Raises TraceError for the first that cannot be used.

    Call it as soon as the entries are known, to report an error early: it needs no capture and, without entries,
    imports nothing heavy.
    """
    return tuple(_users_rule(entry, number) for number, entry in enumerate(entries, start=1))


def _users_rule(entry: Mapping[str, str], number: int) -> KernelClassRule:
    source = f"kernel_classes, rule {number}"
    texts = [entry.get(key) for key in ("class", "pattern")] if isinstance(entry, Mapping) else [None]
    if not all(text and isinstance(text, str) for text in texts):
        raise TraceError(
            f"{source}: {entry!r} lacks a class or a pattern; write {{class: gemm, pattern: 'my_kernel.*'}}"
        )
    kernel_class, pattern = texts
    if reason := pattern_problem(pattern):
        hint = HINTS.get(reason.partition(":")[0], ESCAPE_HINT)
        raise TraceError(f"{source}: the pattern {pattern!r} cannot be used ({reason}); {hint}")
    return KernelClassRule(kernel_class, (("full_name", pattern),), "a rule of config.yaml")


# A kernel's own name ends at its template arguments or parameters. Unnamed namespaces contain brackets, too, and a few
# names begin with a return type, std::enable_if<...>::type, that contains anything.
_OWN_NAME = re.compile(r"(?:std::enable_if<.*?>::type )?(?:[^<(]|<unnamed>|\(anonymous namespace\))*")


def _fields(name: str) -> KernelNameFields:
    if name.startswith("aten::"):
        return KernelNameFields(name.removeprefix("aten::"), "", "", name)
    own_name = _OWN_NAME.match(name).group()
    return KernelNameFields("", own_name.lower(), name[len(own_name) :].lower(), name)


def _first_fitting_rules(names: list[str], rules: Iterable[KernelClassRule]) -> list[KernelClassRule | None]:
    """The first rule that fits each name, None if none does. Later rules search only the remaining names."""
    fields = [_fields(name) for name in names]
    rule_of: list[KernelClassRule | None] = [None] * len(names)
    remaining = list(range(len(names)))
    for rule in rules:
        fitting = set(_fitting(rule, fields, remaining))
        for position in fitting:
            rule_of[position] = rule
        remaining = [position for position in remaining if position not in fitting]
        if not remaining:
            break
    return rule_of


def _fitting(rule: KernelClassRule, fields: list[KernelNameFields], positions: list[int]) -> list[int]:
    """Those of `positions` at which the fields contain all patterns of the rule. An empty field never fits."""
    for field, pattern in rule.patterns:
        positions = [position for position in positions if getattr(fields[position], field)]
        matches = is_found_in(_expression(field, pattern), [getattr(fields[position], field) for position in positions])
        positions = [position for position, matched in zip(positions, matches, strict=True) if matched]
    return positions


def _expression(field: str, pattern: str) -> str:
    """The regular expression of a pattern. For the field `operators`, the pattern is a list of names."""
    return rf"^_?(?:{'|'.join(pattern.split())})(?:_backward(?:_data)?)?_?$" if field == "operators" else pattern


def is_found_in(pattern: str, texts: Sequence[str]) -> list[bool]:
    """For each text: whether the pattern is found in it. RE2 searches, in a time that is linear in the text; Python's
    engine tries every way to match, which takes forever for `(a|a|[a-z]+)+$!` in a name of forty letters."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not texts:
        return []
    return pc.match_substring_regex(pa.array(texts, pa.string()), pattern).to_pylist()


def pattern_problem(pattern: str) -> str:
    """Why RE2 cannot search for the pattern, in its own words; empty if it can."""
    import pyarrow as pa

    try:
        is_found_in(pattern, [""])
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        return str(error).removeprefix("Invalid regular expression: ")
    return ""


def is_fp32_without_tensor_cores(name: str) -> bool:
    """Whether a matrix multiply of this name computes in fp32 on ordinary cores; False if its name does not say."""
    return bool(re.search(IN_FP32, name, re.IGNORECASE)) and not re.search(ON_TENSOR_CORES, name, re.IGNORECASE)
