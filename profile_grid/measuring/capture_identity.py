"""Whether a file is the one that the result beside it tells of: by its digest, and by the specification inside it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from profile_grid.measuring.results import StageResult

TABLE = "RUN_SPECIFICATION"
CHUNK_BYTES = 2**20


def write_specification(sqlite: Path, specification: dict) -> None:
    """Writes into a capture what was captured: one row of canonical JSON in a table of its own."""
    with full_disk_as_os_error(sqlite), closing(sqlite3.connect(sqlite)) as database, database:
        database.execute(f"CREATE TABLE {TABLE} (specification TEXT NOT NULL)")
        database.execute(f"INSERT INTO {TABLE} VALUES (?)", (json.dumps(specification, sort_keys=True),))


@contextmanager
def full_disk_as_os_error(path: Path) -> Iterator[None]:
    """What SQLite says of a full disk, as every other writer says it."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error


def identity(path: Path) -> dict:
    """What a result holds of a file beside it."""
    return {"sha256": sha256_of_file(path), "bytes": path.stat().st_size}


def sha256_of_file(path: Path) -> str:
    """The digest of a file of any size."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def difference(capture: StageResult, sqlite: Path) -> str | None:
    """Why the file is not the one that was captured; None where it is."""
    if found := quick_difference(capture, sqlite):
        return found
    same = sha256_of_file(sqlite) == capture.files[sqlite.name].sha256
    return None if same else "its digest is not the one in capture.json"


def quick_difference(capture: StageResult, sqlite: Path) -> str | None:
    """The same without reading all of the file: by its size and the specification inside it."""
    if not sqlite.exists():
        return "it is missing"
    if (size := sqlite.stat().st_size) != capture.files[sqlite.name].bytes:
        return f"it has {size} bytes, capture.json tells of {capture.files[sqlite.name].bytes}"
    found = _specification(sqlite)
    if found is None:
        return "it does not say what was captured"
    if found == capture.specification:
        return None
    return f"it is a capture of {found.get('program', {}).get('run', 'another run')} with other settings"


def _specification(sqlite: Path) -> dict | None:
    try:
        with closing(sqlite3.connect(f"{sqlite.resolve().as_uri()}?mode=ro", uri=True)) as database:
            ((text,),) = database.execute(f"SELECT specification FROM {TABLE}")
        return json.loads(text)
    except (sqlite3.Error, ValueError, TypeError):  # no such table, or no capture at all
        return None
