"""The findings of a capture: what its rules find, and the rules that cannot be checked."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kernel_tables.attribution import path_text
from kernel_tables.capture import NONE
from kernel_tables.profile import Profile
from kernel_tables.rules import RULES, Context, Hit, Rule
from kernel_tables.steps import IDLE, Scope

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Diagnosis:
    """The result of one rule. Times are milliseconds of a step (without steps, of the capture) on one device."""

    code: str
    message: str  # one sentence; the reason if the rule abstains
    abstained: bool
    evidence: dict[str, object] = field(default_factory=dict)
    # "ranges" and "kernels": the longest, with their ms; "steps": the indices of its steps
    where: dict[str, object] = field(default_factory=dict)
    gain_ms: float | None = None  # what a fix saves of a step at most; None if the rule abstains
    gain_percent: float | None = None  # its share of what StepTime.percent_base says
    advice: str = ""
    sure: str = ""  # certain, likely, possible

    def sentence(self, base: str = "") -> str:
        """A finding in words: what is lost, what a fix saves, and how. `base` is StepTime.percent_base."""
        return f"{self.message}; fixing it saves at most {self.gain_percent:.0f} %{base}. To fix it, {self.advice}"


def diagnose(source: Profile | Scope, step_name: str = "step", rules: Sequence[Rule] = ()) -> list[Diagnosis]:
    """The findings of a capture (or of its scope, if the caller has that already), largest gain first, then the rules
    that abstain. Rules that found nothing are left out.

    `rules` are tried after the built-in ones: see rules.rules_of_file. Raises NotConserved if the parts of some time do
    not add up to it.
    """
    scope = source if isinstance(source, Scope) else Scope(source, step_name)
    context, hits, found = Context(scope), {}, []
    for rule in (*RULES, *rules):
        about = {"code": rule.code, "advice": rule.advice, "sure": rule.sure}
        if reason := next(filter(None, map(context.lacks, rule.needs)), ""):
            found.append(Diagnosis(message=reason, abstained=True, **about))
            continue
        claimed_ns = [hits[code].ns_by_activity for code in rule.leaves_to if code in hits]
        context.claimed_ns = sum(claimed_ns, start=np.zeros(len(scope.activities), np.int64))
        hit = rule.find(context) if rule.find else context.idle_hit(rule.code, rule.when)
        counted_ns = hit and (hit.gain_ns if hit.counted_ns is None else hit.counted_ns)
        if counted_ns and scope.share(counted_ns) >= rule.share:
            hits[rule.code], facts = hit, (hit.evidence, _where(scope, hit), *_gain(scope, hit))
            found.append(Diagnosis(rule.code, hit.message, False, *facts, rule.advice, rule.sure))
    return sorted(found, key=lambda finding: (finding.abstained, -(finding.gain_ms or 0)))


def _gain(scope: Scope, hit: Hit) -> tuple[float, float]:
    """The milliseconds and percent of a step that a fix saves at most, as StepTime.percent_base says of which."""
    before_ns = None if scope.profile.is_cpu_only else scope.step_before_ns
    step_ns = limit_ns = before_ns or scope.span_ns / scope.steps_on_devices
    if before_ns:
        # Recording does not change the work of the GPU, so a step before recording is idle for the rest of its time.
        busy_ns = scope.span_ns - scope.parts_ns[IDLE]
        limit_ns -= (busy_ns - min(hit.running_ns, busy_ns)) / scope.steps_on_devices
    gain_ns = min(hit.gain_ns / scope.steps_on_devices, limit_ns)
    return gain_ns / 1e6, 100 * gain_ns / step_ns


def _where(scope: Scope, hit: Hit) -> dict[str, object]:
    """The ranges and kernels with most of the time that a rule counts, and the steps with any of it."""

    def longest(group: np.ndarray, named: Callable[[int], str]) -> dict[str, float]:
        """The three groups (`group` is by activity: its number) with the most time, and their ms."""
        ns = np.bincount(group, hit.ns_by_activity)
        largest = [number for number in np.argsort(-ns, kind="stable")[:3].tolist() if ns[number] > 0]
        return {named(number): scope.per_step_ms(int(ns[number])) for number in largest}

    steps, paths = np.unique(scope.step_by_activity[hit.ns_by_activity > 0]), scope.profile.paths
    return {
        "ranges": longest(scope.profile.attribution.path, lambda path: path_text(paths[path]) or "(no range)"),
        "kernels": longest(scope.activities.name, scope.activities.names.__getitem__),
        "steps": steps[steps != NONE].tolist(),
    }


def as_table(findings: list[Diagnosis]) -> "pd.DataFrame":
    """One row per diagnosis; evidence and where are JSON."""
    import pandas as pd

    table = pd.DataFrame(map(vars, findings), columns=list(Diagnosis.__dataclass_fields__))
    for column in ("evidence", "where"):
        table[column] = pd.Series([json.dumps(value, ensure_ascii=False) for value in table[column]], dtype=object)
    return table.astype({"gain_ms": "float64", "gain_percent": "float64", "abstained": "bool"})
