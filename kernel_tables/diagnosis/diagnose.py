"""The findings of a capture: the results of all rules, and the rules that cannot be checked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

import numpy as np

from kernel_tables.attribution import arrays, capture_arrays, path_text
from kernel_tables.clean_text import escaped_json
from kernel_tables.diagnosis.context import DiagnosisContext, RuleHit
from kernel_tables.diagnosis.devices import IDLE
from kernel_tables.diagnosis.rules import IDLE_TIME_RULES, RULES, DiagnosisRule
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.diagnosis.step_time import step_before_ns

if TYPE_CHECKING:
    import pandas as pd

    from kernel_tables.counters.joining import Filling

MAX_NAMED = 3  # ranges, and as many kernels, of a finding


@dataclass(frozen=True)
class Diagnosis:
    """The result of one rule. Times are milliseconds of a step (without steps, of the capture) on one device."""

    code: str
    message: str  # one sentence; the reason if the rule abstains
    abstained: bool
    evidence: dict[str, object]
    where: dict[str, object]  # "ranges" and "kernels": the longest, with their ms; "steps": the indices of its steps
    gain_ms: float | None  # what a fix saves of a step at most; None if the rule abstains
    gain_percent: float | None  # the same as a share: of a step before recording if step_before_ns knows its time
    advice: str
    sure: str  # certain, likely, possible
    threshold: str
    source: str

    def sentence(self, base: str = "") -> str:
        """A finding in words: what is lost, what a fix saves, and how. `base` is StepTime.percent_base."""
        return f"{self.message}; fixing it saves at most {self.gain_percent:.0f} %{base}. To fix it, {self.advice}"


def diagnose(
    source: capture_arrays.CaptureArrays | Scope,
    step_name: str = "step",
    custom_rules: Sequence[DiagnosisRule] = (),
    counters: pd.DataFrame | None = None,
    rules: Sequence[DiagnosisRule] = RULES,
) -> list[Diagnosis]:
    """The findings of a capture (or of its scope, if the caller has that already), largest gain first, then the rules
    that abstain. Rules that found nothing are left out.

    `counters` are those of Nsight Compute, as counters/reading.py reads them. Raises ImpossibleCapture if the capture
    is impossible.
    """
    scope = source if isinstance(source, Scope) else Scope(source, step_name)
    findings = _diagnoses((*rules, *custom_rules), DiagnosisContext(scope, _filling(scope.trace, counters)))
    scope.trace.require_possible()  # reads names and ranges of any capture, also those that no rule needed
    return sorted(findings, key=lambda finding: (finding.abstained, -(finding.gain_ms or 0)))


def abstained_by_reason(findings: list[Diagnosis]) -> dict[str, list[str]]:
    """The codes of the rules that abstain, by reason."""
    reasons: dict[str, list[str]] = {}
    for finding in findings:
        if finding.abstained:
            reasons.setdefault(finding.message, []).append(finding.code)
    return reasons


def as_table(findings: list[Diagnosis]) -> pd.DataFrame:
    """One row per diagnosis; evidence and where are JSON."""
    import pandas as pd

    columns = list(Diagnosis.__dataclass_fields__)
    table = pd.DataFrame([asdict(finding) for finding in findings], columns=columns)
    for column in ("evidence", "where"):
        table[column] = pd.Series([json.dumps(value, ensure_ascii=False) for value in table[column]], dtype=object)
    return table.astype({"gain_ms": "float64", "gain_percent": "float64", "abstained": "bool"})


def as_json(findings: list[Diagnosis]) -> str:
    """One object per diagnosis; its evidence and where are objects, too."""
    return escaped_json(json.dumps([asdict(finding) for finding in findings], ensure_ascii=False, indent=1)) + "\n"


def _filling(trace: capture_arrays.CaptureArrays, counters: pd.DataFrame | None) -> Filling | None:
    if counters is None:
        return None
    from kernel_tables.counters.joining import filling_of

    return filling_of(trace, counters)


def _diagnoses(rules: Sequence[DiagnosisRule], context: DiagnosisContext) -> list[Diagnosis]:
    """The results of `rules`, in their order. A rule runs after those in its `leaves_to` and `silent_where`, since it
    needs their hits."""
    by_code = {rule.code: rule for rule in rules}
    diagnoses, hits, before_ns = {}, {}, step_before_ns(context.scope)
    earlier_codes = {rule.code: (*rule.leaves_to, *rule.silent_where) for rule in rules}
    order = TopologicalSorter(earlier_codes).static_order()
    for code in filter(by_code.get, order):  # codes that `rules` only refer to are skipped
        rule = by_code[code]
        if context.scope.trace.is_cpu_only and rule.advice_on_cpu:
            rule = replace(rule, advice=rule.advice_on_cpu)
        elif rule.advice_in_graphs and context.is_mostly_replayed:
            rule = replace(rule, advice=rule.advice_in_graphs)
        reasons = filter(None, (need(context) for need in rule.needs))  # worked out one by one, so only up to the first
        if reason := next(reasons, None):
            diagnoses[code] = _diagnosis(rule, reason, abstained=True)
        elif hit := _hit(rule, context, hits):
            gain_ms, gain_percent = _gain(context.scope, code, hit, before_ns)
            diagnoses[code] = _diagnosis(
                rule, hit.message, abstained=False, evidence=hit.evidence, where=_where(context, hit), gain_ms=gain_ms,
                gain_percent=gain_percent,
            )  # fmt: skip
            hits[code] = replace(hit, ns_by_activity=arrays.compact(hit.ns_by_activity))
    return [diagnoses[code] for code in by_code if code in diagnoses]


def _hit(rule: DiagnosisRule, context: DiagnosisContext, hits: dict[str, RuleHit]) -> RuleHit | None:
    """The result of a rule. It does not count the kernels and the time that it leaves to earlier `hits` (by code)."""
    if any(code in hits for code in rule.silent_where):
        return None
    return rule.find(context.with_claims([hits[code] for code in rule.leaves_to if code in hits]))


def _diagnosis(
    rule: DiagnosisRule, message: str, *, abstained: bool, evidence=None, where=None, gain_ms=None, gain_percent=None
) -> Diagnosis:
    return Diagnosis(
        rule.code, message, abstained, evidence or {}, where or {}, gain_ms, gain_percent, rule.advice, rule.sure,
        rule.threshold, rule.source,
    )  # fmt: skip


def _gain(scope: Scope, code: str, hit: RuleHit, before_ns: float | None) -> tuple[float, float]:
    """The milliseconds and percent of a step that a fix saves at most: of a step before recording if its time
    (`before_ns`) is known, else of a recorded step."""
    step_ns = before_ns or scope.span_ns / scope.steps_on_devices
    limit_ns = step_ns
    if before_ns and code in IDLE_TIME_RULES and not scope.trace.is_cpu_only:
        # Recording does not change the work of the GPU, so a step before recording is idle for the rest of its time.
        limit_ns -= (scope.span_ns - scope.parts_ns[IDLE]) / scope.steps_on_devices
    gain_ns = min(hit.gain_ns / scope.steps_on_devices, limit_ns)
    return gain_ns / 1e6, 100 * gain_ns / step_ns


def _where(context: DiagnosisContext, hit: RuleHit) -> dict[str, object]:
    scope = context.scope
    has_time = np.zeros(len(scope.step_ranges) + 1, bool)  # by step; the last entry is for activities of no step
    has_time[scope.step_by_activity[hit.ns_by_activity > 0]] = True
    paths, names = scope.trace.range_paths.tuples, scope.activities.names
    by_path = _largest(scope.trace.activity_path, hit.ns_by_activity)
    by_name = _largest(scope.activities.name, hit.ns_by_activity)
    return {
        "ranges": {path_text.as_path(paths[path]) or "(no range)": scope.per_step_ms(ns) for path, ns in by_path},
        "kernels": {names[name]: scope.per_step_ms(ns) for name, ns in by_name},
        "steps": np.flatnonzero(has_time[:-1]).tolist(),
    }


def _largest(group: np.ndarray, ns_by_activity: np.ndarray) -> list[tuple[int, int]]:
    """The groups (their numbers; `group` is by activity) with the most nanoseconds, at most MAX_NAMED, and these."""
    if not len(group):
        return []
    total_ns = arrays.sums_by_group(group, ns_by_activity, int(group.max()) + 1)
    order = np.argsort(-total_ns, kind="stable")[:MAX_NAMED].tolist()
    return [(largest, int(total_ns[largest])) for largest in order if total_ns[largest] > 0]
