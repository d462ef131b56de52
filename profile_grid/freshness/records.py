"""Records of what made each file of the analysis: `made.json` next to the files, {file: record}.

A record holds digests of the code that made the file, of its settings, of the versions of packages, of the files it was
made from, and of the file itself. It is written after the file. A job removes the records of its outputs before it
begins, so that files of a killed job never count as complete.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from profile_grid.files import write_json

RECORDS_FILE = "made.json"
LOCK_FILE = ".made.lock"
UNKNOWN = ""  # a digest of packages that a plan cannot see
DigestOf = Callable[[str], str | None]


@dataclass(frozen=True)
class Recipe:
    """What makes the outputs of one job: digests."""

    code: str
    settings: str
    packages: str  # of their versions
    inputs: str  # of the files that it reads


CHANGES = {  # by field of a recipe
    "code": "the code that makes it has changed",
    "settings": "the settings have changed",
    "packages": "a package that makes it has another version",
    "inputs": "what it is made from has changed",
}


def stale_reason(records: Mapping[str, dict | None], recipe: Recipe, digest_of: DigestOf) -> str | None:
    """Why one of these files is not what the recipe makes now; None if all are.

    `records` has the record of each file by its path, None for a file without a record; `digest_of` returns the digest
    of a file's content, None if the file is missing.
    """
    for path, record in records.items():
        if (digest := digest_of(path)) is None:
            return f"a file was deleted: {path}"
        if record is None:
            return f"nothing says what made it: {path}"
        for field, change in CHANGES.items():
            recorded, current = record[field], getattr(recipe, field)
            is_comparable = field != "packages" or UNKNOWN not in (recorded, current)
            if recorded != current and is_comparable:
                return change
        if record["sha256"] != digest:
            return f"a file is not the one that was made: {path}"
    return None


def read_records(folder: str) -> dict[str, dict]:
    """The records of the files in a folder, by name, without damaged ones."""
    try:
        records = json.loads(Path(folder, RECORDS_FILE).read_text())
        return {name: record for name, record in records.items() if record.keys() == {*CHANGES, "sha256"}}
    except (OSError, ValueError, AttributeError):
        return {}


class Records:
    """The records of all folders, each folder read once."""

    def __init__(self):
        self._read = cache(read_records)

    def __call__(self, path: str) -> dict | None:
        folder, name = os.path.split(path)
        return self._read(folder).get(name)


def write_records(outputs: Mapping[str, str], recipe: Recipe) -> None:
    """Records that the recipe made these files. `outputs` has the digest of each file's content by its path."""
    for folder, path_by_name in _by_folder(outputs):
        with _changed_records(folder) as records:
            records.update({name: asdict(recipe) | {"sha256": outputs[path]} for name, path in path_by_name.items()})


def remove_records(outputs: Iterable[str]) -> None:
    """Removes the records of these files."""
    for folder, names in _by_folder(outputs):
        if os.path.exists(os.path.join(folder, RECORDS_FILE)):
            with _changed_records(folder) as records:
                for name in names:
                    records.pop(name, None)


def _by_folder(paths: Iterable[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """(folder, {name of a file: its path}) for every folder of these paths."""
    folders: dict[str, dict[str, str]] = {}
    for path in paths:
        folder, name = os.path.split(path)
        folders.setdefault(folder or os.curdir, {})[name] = path
    yield from folders.items()


@contextmanager
def _changed_records(folder: str) -> Iterator[dict[str, dict]]:
    """The records of a folder, for a with block to change; they are written at its end. Meanwhile, other jobs wait."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, LOCK_FILE), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        records = read_records(folder)
        before = dict(records)
        yield records
        if records != before:
            write_json(Path(folder, RECORDS_FILE), dict(sorted(records.items())))
