"""What documents say about runs: why some have no results, and the notes on the others."""

import re
from collections.abc import Collection, Iterable, Sequence

import pandas as pd

from kernel_tables.markdown import escaped
from profile_grid.quantities import MEBIBYTE, known, memory
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY, UNSUPPORTED
from profile_grid.study.stage import Stage
from profile_grid.study.stages import NOT_ASKED, STAGES
from profile_grid.tables.wording import named_keys, of_all, pytorch_reason, run_in_words

MAX_WITH_BYTES = 3  # if more runs have no results, the requested and the free bytes are left out
STAGE_NAMES = "|".join(stage.name for stage in STAGES)
STAGES_PREFIX = rf"(?:{STAGE_NAMES})(?: and (?:{STAGE_NAMES}))*: "  # of a part of a reason: "timing and capture: "


def not_measured(runs: pd.DataFrame, stages: Sequence[Stage] = STAGES) -> list[str]:
    """Why runs have no results of these stages: each reason once with its runs. If there are at most MAX_WITH_BYTES
    such runs, reasons of memory that ran out include the requested and the free bytes."""
    rows_and_statuses = [(row, _failed_stages(row, stages)) for row in runs.to_dict("records")]
    failed = [(row, statuses) for row, statuses in rows_and_statuses if statuses]
    with_bytes = len(failed) <= MAX_WITH_BYTES
    return _with_runs([(row, [_reason(row, statuses, with_bytes=with_bytes)]) for row, statuses in failed], runs)


def run_notes(runs: pd.DataFrame) -> list[str]:
    """The notes on runs that have results, each once with its runs."""
    columns = [stage.status_column for stage in STAGES if stage.of_every_run]
    complete = runs[runs[columns].isin((COMPLETE, NOT_ASKED)).all(axis=1)]
    rows = complete[complete["note"].notna()].to_dict("records")
    notes = [(row, map(escaped, row["note"].split("; "))) for row in rows]
    return _with_runs(notes, complete, "run" if len(complete) == len(runs) else "complete run")


def _with_runs(
    rows_and_texts: Iterable[tuple[dict, Iterable[str]]], runs: pd.DataFrame, noun: str = "run"
) -> list[str]:
    """Each text once, after the name of its run or, if several runs have it, their number among all `runs`."""
    named = named_keys(runs)
    names_by_text: dict[str, list[str]] = {}
    for row, texts in rows_and_texts:
        for text in texts:
            names_by_text.setdefault(text, []).append(run_in_words(row, named))
    return [
        f"{names[0] if len(names) == 1 else of_all(len(names), len(runs), noun)}: {text}"
        for text, names in names_by_text.items()
    ]


def _failed_stages(row: dict, stages: Sequence[Stage]) -> dict[str, str]:
    """The status, by name, of each stage that gave the run no result."""
    statuses = {stage.name: row[stage.status_column] for stage in stages}
    return {stage: status for stage, status in statuses.items() if status not in (COMPLETE, NOT_ASKED)}


def _reason(row: dict, statuses: dict[str, str], *, with_bytes: bool) -> str:
    """Why a run has no results of the stages that failed with these statuses, in Markdown."""
    names_by_status: dict[str, list[str]] = {}
    for name, status in statuses.items():
        names_by_status.setdefault(status, []).append(name)
    if set(names_by_status) == {OUT_OF_MEMORY}:
        return _out_of_memory(row, with_bytes=with_bytes)
    has_reason = known(row.get("reason"))
    reason = escaped(_reason_of_stages(row["reason"], statuses)) if has_reason else "no reason was recorded"
    if set(names_by_status) == {UNSUPPORTED}:
        return f"not supported here: {pytorch_reason(reason)}"
    outcomes = ", ".join(f"{' and '.join(names)} {escaped(status)}" for status, names in names_by_status.items())
    return f"{outcomes}: {reason}"


def _reason_of_stages(reason: str, stages: Collection[str]) -> str:
    """The parts of a reason that are about these stages, or about no stage in particular."""

    def is_relevant(part: str) -> bool:
        prefix = re.match(STAGES_PREFIX, part)
        return prefix is None or not {*prefix[0].removesuffix(": ").split(" and ")}.isdisjoint(stages)

    return "; ".join(filter(is_relevant, re.split(f"; (?={STAGES_PREFIX})", reason)))


def _out_of_memory(row: dict, *, with_bytes: bool) -> str:
    """That memory ran out, and when; with the requested and the free bytes if `with_bytes`."""
    during = f" in {escaped(_moment(row['oom_during']))}" if known(row.get("oom_during")) else ""
    if not with_bytes:
        return f"out of memory{during}"
    requested, free = memory(row.get("oom_requested_bytes")), memory(row.get("oom_free_bytes"))
    if requested == free and known(row.get("oom_free_bytes")):  # rounded: show more digits
        requested, free = (f"{row[key] / MEBIBYTE:,.1f} MiB" for key in ("oom_requested_bytes", "oom_free_bytes"))
    total = memory(row.get("oom_total_bytes"))
    return f"out of memory{during}: {requested} requested, {free} free of {total}"


def _moment(during: str) -> str:
    """A moment of the measured program in words: "warm-up step 0 (forward)"."""
    moment, _, phase = during.replace("initialise", "initialization").replace("warmup", "warm-up").partition(": ")
    return f"{moment} ({phase})" if phase else moment
