"""Where the numbers of a grid come from: machine, software, commit, dates and configuration."""

import hashlib
import json
from importlib import metadata

import pandas as pd

from profile_grid.checkout import git_state
from profile_grid.study.dimensions import MACHINE_KEYS
from profile_grid.study.stages import NOT_ASKED, STAGES

LEFT_OUT = ("device",)  # the device's name implies it


def provenance(runs: pd.DataFrame, plan: dict, checkouts: list[dict]) -> dict:
    """The provenance at the end of every document; a value is a list if runs differ, and None if unknown."""
    requested = [stage for stage in STAGES if (runs[stage.status_column] != NOT_ASKED).any()]
    started = pd.concat([runs[f"{stage.name}_started_utc"] for stage in requested]).dropna()
    statuses = runs[[stage.status_column for stage in requested]].agg(" / ".join, axis=1).value_counts()
    return {
        "runs": len(runs),
        "stages": " / ".join(stage.name for stage in requested),
        "statuses": {name: int(count) for name, count in statuses.items()},
        **{key: _agreed(runs[key]) for key in MACHINE_KEYS if key not in LEFT_OUT},
        "snakemake": metadata.version("snakemake"),
        "measured_git_commit": _agreed(pd.Series([_commit(checkout) for checkout in checkouts], dtype="object")),
        **git_state(),
        "first_run_utc": started.min(),
        "last_run_utc": started.max(),
        "config_sha256": hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest(),
    }


def _commit(checkout: dict) -> str | None:
    commit = checkout["git_commit"]
    return commit if commit is None or checkout["git_clean"] else f"{commit} with changes"


def _agreed(values: pd.Series):
    distinct = sorted(str(value) for value in values.dropna().unique())
    return distinct[0] if len(distinct) == 1 else (distinct or None)
