"""Sentences on what was not measured (out of memory, not supported, incomplete, missing), and notes on other runs."""

import re
from collections.abc import Collection, Sequence

import pandas as pd

from kernel_tables.markdown import escaped
from profile_grid.quantities import known, memory
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY, UNSUPPORTED
from profile_grid.study.stage import Stage
from profile_grid.study.stages import NOT_ASKED, STAGES
from profile_grid.tables.wording import run_in_words

STAGE_NAMES = "|".join(stage.name for stage in STAGES)
LEAD = rf"(?:{STAGE_NAMES})(?: and (?:{STAGE_NAMES}))*: "  # the stages that a part of a reason is about


def not_measured(runs: pd.DataFrame, stages: Sequence[Stage] = STAGES) -> list[str]:
    """Why runs have no results of these stages: each reason once with its runs; for memory, how much was requested and
    free."""
    reasons: dict[str, list[str]] = {}
    for row in runs.to_dict("records"):
        if reason := _reason(row, stages):
            reasons.setdefault(reason, []).append(run_in_words(row))
    return [f"{_some(names)}: {reason}" for reason, names in reasons.items()]


def noted(runs: pd.DataFrame) -> list[str]:
    """The notes on runs that have results, each once with its runs."""
    everywhere = [stage.status_column for stage in STAGES if stage.of_every_run]
    runs, lines = runs[runs[everywhere].isin((COMPLETE, NOT_ASKED)).all(axis=1)], []
    for note, rows in runs[runs["note"].notna()].groupby("note", sort=False):
        names = [run_in_words(row) for row in rows.to_dict("records")]
        lines.append(f"{'every run' if len(names) == len(runs) else _some(names)}: {escaped(note)}")
    return lines


def _reason(row: dict, stages: Sequence[Stage]) -> str | None:
    statuses = {stage.name: row[stage.status_column] for stage in stages}
    failed = {stage: status for stage, status in statuses.items() if status not in (COMPLETE, NOT_ASKED)}
    if not failed:
        return None
    ended = {status: [stage for stage in failed if failed[stage] == status] for status in failed.values()}
    if set(ended) == {OUT_OF_MEMORY}:
        return _memory(row)
    known_reason = known(row.get("reason"))
    reason = escaped(_reason_of(row["reason"], failed)) if known_reason else "no reason was recorded"
    if set(ended) == {UNSUPPORTED}:
        return f"not supported here: {reason}"
    outcomes = ", ".join(f"{' and '.join(stages)} {escaped(status)}" for status, stages in ended.items())
    return f"{outcomes}: {reason}"


def _reason_of(reason: str, stages: Collection[str]) -> str:
    """The parts of a reason that concern these stages, or no stage in particular."""
    parts = re.split(f"; (?={LEAD})", reason)
    leads = [match and {*match[0][:-2].split(" and ")} for match in (re.match(LEAD, part) for part in parts)]
    return "; ".join(part for part, lead in zip(parts, leads, strict=True) if lead is None or lead & {*stages})


def _memory(row: dict) -> str:
    during = f" during {escaped(row['oom_during'])}" if known(row.get("oom_during")) else ""
    requested = memory(row.get("oom_requested_bytes"))
    free, total = memory(row.get("oom_free_bytes")), memory(row.get("oom_total_bytes"))
    return f"out of memory{during}: {requested} requested, {free} free of {total}"


def _some(names: list[str], most: int = 4) -> str:
    return "; ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
