"""Custom rules: kernels by name, class and range, or API calls by name, that take too much of the span."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from kernel_tables.diagnosis.context import DiagnosisContext, RuleHit
from kernel_tables.diagnosis.kernel_rules import time_hit
from kernel_tables.diagnosis.needs import calls, gpu, kernels
from kernel_tables.diagnosis.rules import CODES, POSSIBLE, DiagnosisRule
from kernel_tables.errors import TraceError
from kernel_tables.intervals import covered_between_ns
from kernel_tables.kernel_classes.categories import is_found_in, pattern_problem

CALL = "call"
KERNEL_SELECTORS = ("kernel", "class", "range")
SELECTORS = (*KERNEL_SELECTORS, CALL)
PATTERNS = ("kernel", CALL)  # selectors that are regular expressions
TYPES = {"code": str, "advice": str, **dict.fromkeys(SELECTORS, str), "share": float, "launches": int}
EXAMPLE = "code = 'slow_norm', kernel = 'rms_norm', share = 0.05, advice = '...'"


def rules_of_file(path: Path) -> tuple[DiagnosisRule, ...]:
    """The rules of a TOML file, each a table [[rule]]. Raises TraceError for the first that cannot be used."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: no TOML ({error}); write tables [[rule]] with {EXAMPLE}") from error
    if set(content) != {"rule"} or not isinstance(content["rule"], list):
        raise TraceError(f"{path}: holds {', '.join(content) or 'nothing'}; write tables [[rule]] with {EXAMPLE}")
    return rules_of_entries(content["rule"], str(path))


def rules_of_entries(entries: Sequence[Mapping], source: str) -> tuple[DiagnosisRule, ...]:
    """The rules from the entries of a file or a configuration, which the messages of a TraceError call `source`."""
    rules = tuple(_rule(entry, f"{source}, rule {number}") for number, entry in enumerate(entries, start=1))
    codes = [*CODES, *(rule.code for rule in rules)]
    repeated = next((code for code in codes if codes.count(code) > 1), None)
    if repeated:
        raise TraceError(f"{source}: there are two rules {repeated!r}; give each a different code")
    return rules


def _rule(entry: Mapping, source: str) -> DiagnosisRule:
    if problem := _problem(entry):
        raise TraceError(f"{source}: {problem}; write {EXAMPLE}")
    selection = ", ".join(f"{key} {entry[key]!r}" for key in SELECTORS if key in entry)
    share, launches = float(entry["share"]), entry.get("launches", 1)
    noun, find, needs = "kernels", _kernel_hit, (kernels,)
    if CALL in entry:
        noun, find, needs = "calls", _call_hit, (kernels, gpu, calls)
    return DiagnosisRule(
        entry["code"], f"{noun} of {selection}", f"{share:.4g} of the span, {launches} {noun} a step",
        entry["advice"], POSSIBLE, partial(find, entry=dict(entry), selection=selection), needs, source="custom rule",
    )  # fmt: skip


def _problem(entry: Mapping) -> str | None:
    """Why a rule cannot be used, None if it can."""
    if not isinstance(entry, Mapping):
        return f"{entry!r} is not a table"
    unknown = [key for key in entry if key not in TYPES]
    if unknown:
        return f"{unknown[0]!r} is not known"
    for key, expected_type in TYPES.items():
        if key in entry and not _has_type(entry[key], expected_type):
            return f"{key} = {entry[key]!r} cannot be used"
    for key in ("code", "share", "advice"):
        if key not in entry:
            return f"{key!r} is lacking"
    if not any(key in entry for key in SELECTORS):
        return "it names no kernel, class, range or call"
    if CALL in entry and any(key in entry for key in KERNEL_SELECTORS):
        return "it names a call and kernels; write a rule for each"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", entry["code"]) or not 0 <= entry["share"] <= 1:
        return "a code consists of lower-case letters, digits and _, and a share is between 0 and 1"
    for pattern in (entry[key] for key in PATTERNS if key in entry):
        if reason := pattern_problem(pattern):
            return f"the pattern {pattern!r} cannot be used ({reason})"
    return None


def _has_type(value: object, expected: type) -> bool:
    """Whether the value has this type and is not "". An integer will do for a float, and a boolean for nothing."""
    types = (int, float) if expected is float else expected
    return isinstance(value, types) and not isinstance(value, bool) and value != ""


def _kernel_hit(context: DiagnosisContext, entry: Mapping, selection: str) -> RuleHit | None:
    scope = context.scope
    mask = scope.is_in_span & scope.is_kernel
    if "kernel" in entry:
        mask &= scope.with_names(is_found_in(entry["kernel"], scope.activities.names))
    if "class" in entry:
        mask &= scope.is_of_class(entry["class"])
    if "range" in entry:
        mask &= scope.is_in_range(lambda name: name == entry["range"])
    if mask.sum() < entry.get("launches", 1) * scope.step_count:
        return None
    return time_hit(context, mask, f"{scope.noun} of {selection} take", entry["share"])


def _call_hit(context: DiagnosisContext, entry: Mapping, selection: str) -> RuleHit | None:
    """The host's time in the calls of `entry` within the spans of the GPUs. Nested calls count once."""
    scope, total_ns, count = context.scope, 0, 0
    is_wanted = np.array(is_found_in(entry[CALL], scope.calls.functions), bool)[scope.calls.function]
    for device in scope.devices:
        first_ns, last_ns, start_ns = device.first_ns, device.last_ns, scope.calls.start_ns
        is_match = is_wanted & (scope.calls.process == device.process)
        total_ns += covered_between_ns(scope.calls.time_of(is_match), first_ns, last_ns)
        count += int((is_match & (start_ns >= first_ns) & (start_ns < last_ns)).sum())
    if count < max(entry.get("launches", 1) * scope.step_count, 1) or scope.share(total_ns) < entry["share"]:
        return None
    evidence = {"calls_per_step": round(count / scope.step_count, 1), "ms": scope.per_step_ms(total_ns)}
    message = f"the host is in calls of {selection} for {scope.in_words(total_ns)}"
    return RuleHit(total_ns, message, evidence, np.zeros(len(scope.activities), np.int64))
