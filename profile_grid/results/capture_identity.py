"""Whether a file belongs to the result next to it: by its digest, and by the specification inside it."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from kernel_tables.files import full_disk_as_os_error
from profile_grid.freshness.digests import sha256_of_file
from profile_grid.results.results import Origin, StageResult

SPECIFICATION_TABLE = "RUN_SPECIFICATION"


def write_specification(sqlite: Path, specification: dict) -> None:
    """Writes into a capture what was captured: one row of canonical JSON in a separate table."""
    with full_disk_as_os_error(sqlite), closing(sqlite3.connect(sqlite)) as database, database:
        database.execute(f"CREATE TABLE {SPECIFICATION_TABLE} (specification TEXT NOT NULL)")
        database.execute(f"INSERT INTO {SPECIFICATION_TABLE} VALUES (?)", (json.dumps(specification, sort_keys=True),))


def file_identity(path: Path) -> dict:
    """How a result identifies a file next to it: {"sha256", "bytes"}."""
    return {"sha256": sha256_of_file(path), "bytes": path.stat().st_size}


def identity_difference(result: Origin | StageResult, path: Path) -> str | None:
    """Why a file is not the one that was measured with this result; None if it is."""
    if reason := quick_identity_difference(result, path):
        return reason
    same = sha256_of_file(path) == result.files[path.name].sha256
    return None if same else f"the digest of {path.name} is not the one in the result"


def quick_identity_difference(result: Origin | StageResult, path: Path) -> str | None:
    """`identity_difference` without reading the whole file: by its size and, of a capture, the specification in it."""
    if not path.exists():
        return f"{path.name} is missing"
    if (size := path.stat().st_size) != result.files[path.name].bytes:
        return f"{path.name} has {size} bytes, but the result says {result.files[path.name].bytes}"
    return _specification_difference(result, path) if path.suffix == ".sqlite" else None


def _specification_difference(result: Origin | StageResult, sqlite: Path) -> str | None:
    captured = _captured_specification(sqlite)
    if captured is None:
        return f"{sqlite.name} does not say what was captured"
    if captured == result.specification:
        return None
    run = captured.get("program", {}).get("run", "another run")
    return f"{sqlite.name} is a capture of {run} with other settings"


def _captured_specification(sqlite: Path) -> dict | None:
    try:
        with closing(sqlite3.connect(f"{sqlite.resolve().as_uri()}?mode=ro", uri=True)) as database:
            ((text,),) = database.execute(f"SELECT specification FROM {SPECIFICATION_TABLE}")
        return json.loads(text)
    except (sqlite3.Error, ValueError, TypeError):  # no such table, or no capture at all
        return None
