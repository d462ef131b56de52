"""Plans a result again that is not what would be made now, whatever Snakemake remembers of it.

Snakemake compares parameters with those that it noted in .snakemake. Results that were copied here without it, or whose
notes were cleaned away, would stand for ever; so each result tells what made it, and is asked when its job is planned.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from snakemake.logging import logger

from profile_grid.results.capture_identity import quick_difference
from profile_grid.results.freshness import OTHER_SETTINGS, stale_reason, stale_tables_reason
from profile_grid.results.results import BadResult, read_origin, read_status

UNUSABLE = "a result cannot be used"


class Staleness:
    """What was found of the results that this Snakemake has looked at."""

    def __init__(self, workflow):
        self._workflow = workflow
        self._reasons: dict[str, str | None] = {}

    def again_if(self, path: str, reason: Callable[[Path], str | None]) -> list[str]:
        """[], for an input function. Where the file is there and there is a reason, its job is planned again."""
        if path not in self._reasons:
            self._reasons[path] = found = reason(Path(path)) if os.path.exists(path) else None
            if found:
                self._say(path, found)
        if self._reasons[path]:
            self._plan(path)
        return []

    def _plan(self, path: str) -> None:
        """Forces the job as --forcerun does. Should Snakemake come to keep that elsewhere, nothing is forced, and the
        merge stops at the result by its name."""
        forced = getattr(getattr(self._workflow, "dag", None), "forcefiles", None)
        if isinstance(forced, set):
            forced.add(path)

    def _say(self, path: str, reason: str) -> None:
        """One result of each kind: there may be thousands."""
        kind = reason.partition(":")[0]
        if [known.partition(":")[0] for known in self._reasons.values() if known].count(kind) == 1:
            logger.info(f"made again, since {reason} ({path}, and maybe others)")


def result_reason(specification: str, sources: str, files: Iterable[str]) -> Callable[[Path], str | None]:
    """Why the result of a stage is not what would be measured now, or which of the files beside it is not there."""

    def reason(path: Path) -> str | None:
        try:
            origin = read_origin(path)
            missing = deleted(path.parent, [*files, *origin.files])
            return missing or stale_reason(origin, json.loads(specification), sources)
        except BadResult as error:
            return f"{UNUSABLE}: {error.what}"

    return reason


def tables_reason(
    result: str, read_too: Iterable[str], sources: str, own_rules: str, files: Iterable[str]
) -> Callable[[Path], str | None]:
    """Why the tables of a run are not what would be made now from the result beside their status, and others that are
    read too, or which of the files that hold them is not there."""

    def reason(path: Path) -> str | None:
        try:
            origin, *others = (read_origin(Path(name)) for name in (result, *read_too))
            for one in (origin, *others):
                for name in one.files:
                    if other := quick_difference(one, path.parent / name):
                        return f"a file is not that of its run: {other}"
            status = read_status(path)
            return deleted(path.parent, files) or stale_tables_reason(status, origin, sources, own_rules, others)
        except BadResult as error:
            return f"{UNUSABLE}: {error.what}"

    return reason


def missing_reason(contents: str) -> Callable[[Path], str | None]:
    """Why a folder does not hold what it did when it was made: one of the files that its table of contents names is
    missing."""

    def reason(folder: Path) -> str | None:
        return deleted(folder, [contents]) or deleted(folder, (folder / contents).read_text().splitlines())

    return reason


def deleted(folder: Path, names: Iterable[str]) -> str | None:
    """That one of these files is not in the folder; None where all are."""
    missing = next((name for name in names if not os.path.exists(f"{folder}/{name}")), None)
    return missing and f"a file was deleted: {missing}"


def content_reason(wanted: Callable[[], Mapping]) -> Callable[[Path], str | None]:
    """Why a JSON file does not hold what is wanted now."""

    def reason(path: Path) -> str | None:
        try:
            return None if json.loads(path.read_text()) == wanted() else OTHER_SETTINGS
        except ValueError:
            return f"{UNUSABLE}: it is damaged"

    return reason
