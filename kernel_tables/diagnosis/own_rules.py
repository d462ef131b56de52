"""Custom rules: kernels by name, class and range, or API calls by name, that take too much of the span."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from kernel_tables.diagnosis.context import DiagnosisContext, RuleHit
from kernel_tables.diagnosis.kernel_rules import taking
from kernel_tables.diagnosis.needs import calls, gpu, kernels
from kernel_tables.diagnosis.rules import CODES, POSSIBLE, DiagnosisRule
from kernel_tables.errors import TraceError
from kernel_tables.intervals import intersection, union
from kernel_tables.kernel_classes.categories import found_in, unusable

CALL = "call"
OF_KERNELS = ("kernel", "class", "range")
SELECTORS = (*OF_KERNELS, CALL)
PATTERNS = ("kernel", CALL)
KEYS = {"code": str, "advice": str, **dict.fromkeys(SELECTORS, str), "share": float, "launches": int}
EXAMPLE = "code = 'slow_norm', kernel = 'rms_norm', share = 0.05, advice = '...'"


def rules_of_file(path: Path) -> tuple[DiagnosisRule, ...]:
    """The rules of a TOML file, each a table [[rule]]; raises TraceError for the first that cannot be used."""
    try:
        written = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: no TOML ({error}); write tables [[rule]] with {EXAMPLE}") from error
    if set(written) != {"rule"} or not isinstance(written["rule"], list):
        raise TraceError(f"{path}: holds {', '.join(written) or 'nothing'}; write tables [[rule]] with {EXAMPLE}")
    return own_rules(written["rule"], str(path))


def own_rules(written: Sequence[Mapping], source: str) -> tuple[DiagnosisRule, ...]:
    """The rules from the entries of a file or a configuration; errors (TraceError) name it `source`."""
    rules = tuple(_rule(entry, f"{source}, rule {number}") for number, entry in enumerate(written, start=1))
    codes = [*CODES, *(rule.code for rule in rules)]
    twice = next((code for code in codes if codes.count(code) > 1), None)
    if twice:
        raise TraceError(f"{source}: there are two rules {twice!r}; give each a different code")
    return rules


def _rule(written: Mapping, source: str) -> DiagnosisRule:
    if problem := _problem(written):
        raise TraceError(f"{source}: {problem}; write {EXAMPLE}")
    selection = ", ".join(f"{key} {written[key]!r}" for key in SELECTORS if key in written)
    share, launches = float(written["share"]), written.get("launches", 1)
    of_calls, of_kernels = ("calls", _calling, (kernels, gpu, calls)), ("kernels", _taking, (kernels,))
    looks_for, find, needs = of_calls if CALL in written else of_kernels
    return DiagnosisRule(
        written["code"], f"{looks_for} of {selection}", f"{share:.4g} of the span, {launches} {looks_for} a step",
        "custom rule", written["advice"], POSSIBLE, partial(find, written=dict(written), selection=selection), needs,
    )  # fmt: skip


def _problem(written: Mapping) -> str | None:
    """Why a rule cannot be used, None if it can."""
    if not isinstance(written, Mapping):
        return f"{written!r} is not a table"
    unknown = [key for key in written if key not in KEYS]
    if unknown:
        return f"{unknown[0]!r} is not known"
    wrong = [key for key, kind in KEYS.items() if key in written and not _is(written[key], kind)]
    lacking = [key for key in ("code", "share", "advice") if key not in written]
    if wrong or lacking:
        return f"{wrong[0]} = {written[wrong[0]]!r} cannot be used" if wrong else f"{lacking[0]!r} is lacking"
    if not any(key in written for key in SELECTORS):
        return "it names no kernel, class, range or call"
    if CALL in written and any(key in written for key in OF_KERNELS):
        return "it names a call and kernels; write a rule for each"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", written["code"]) or not 0 <= written["share"] <= 1:
        return "a code is of small letters and _, a share between 0 and 1"
    reasons = ((written[key], unusable(written[key])) for key in PATTERNS if key in written)
    return next((f"the pattern {text!r} cannot be used ({reason})" for text, reason in reasons if reason), None)


def _is(value: object, kind: type) -> bool:
    if kind is str:
        return isinstance(value, str) and value != ""
    return isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)


def _taking(context: DiagnosisContext, written: Mapping, selection: str) -> RuleHit | None:
    scope = context.scope
    mask = scope.inside & scope.is_kernel
    if "kernel" in written:
        mask &= scope.named(found_in(written["kernel"], scope.activities.names))
    if "class" in written:
        mask &= scope.of_class(written["class"])
    if "range" in written:
        mask &= scope.within(lambda name: name == written["range"])
    enough = mask.sum() >= written.get("launches", 1) * scope.count
    return taking(context, mask, f"{scope.noun} of {selection} take", written["share"]) if enough else None


def _calling(context: DiagnosisContext, written: Mapping, selection: str) -> RuleHit | None:
    """The host's time in such calls within the spans of its GPUs, nested calls count once."""
    scope, total_ns, count = context.scope, 0, 0
    wanted = np.array(found_in(written[CALL], scope.calls.functions), bool)[scope.calls.function]
    for device in scope.devices:
        first, last = (np.array([end]) for end in (device.first_ns, device.last_ns))
        matches = wanted & (scope.calls.process == device.process)
        total_ns += intersection(scope.calls.during(matches), union(first, last)).total_ns
        count += int((matches & (scope.calls.start_ns >= first) & (scope.calls.start_ns < last)).sum())
    if not count or count < written.get("launches", 1) * scope.count or scope.share(total_ns) < written["share"]:
        return None
    evidence = {"calls_per_step": round(count / scope.count, 1), "ms": scope.per_step_ms(total_ns)}
    message = f"the host is in calls of {selection} for {scope.in_words(total_ns)}"
    return RuleHit(total_ns, message, evidence, np.zeros(len(scope.activities), np.int64))
