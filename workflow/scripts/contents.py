"""Lists the files of the grid, and removes those of earlier grids: `python -m workflow.scripts contents ...`.

Files of earlier grids are those in results/ with a record of what made them that no job makes now; files without a
record are the user's. Folders of runs stay: measurements take long, and tables and documents show only those of the
grid.
"""

import os
import shutil
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from profile_grid.files import write_text
from profile_grid.freshness.digests import sha256_of_file
from profile_grid.freshness.records import LOCK_FILE, RECORDS_FILE, read_records, remove_folder_records

FOLDERS = ("results/answers", "results/figures", "results/page", "results/processes", "results/tables")
NEGLIGIBLE = {RECORDS_FILE, LOCK_FILE, ".snakemake_timestamp"}  # a folder with only these files counts as empty


def main(*, files: list, output: Path) -> None:
    for line in remove_leftovers(set(files)):
        print(line, file=sys.stderr)
    write_text(output, "".join(f"{path}\n" for path in sorted(files)))


def leftovers(declared: Collection[str]) -> dict[str, list[str]]:
    """Names of leftover files by the folder that has their records. `declared` are the files, and folders of files,
    that jobs make now."""
    names = {folder: _leftover_names(folder, declared) for folder in _folders_with_records()}
    return {folder: leftover for folder, leftover in names.items() if leftover}


def leftover_reason(declared: Collection[str]) -> str | None:
    """Why leftover files have to be removed; None if there are none."""
    folder, names = next(iter(leftovers(declared).items()), (None, ()))
    return f"a file of an earlier grid is there: {folder}/{names[0]}" if names else None


def remove_leftovers(declared: Collection[str]) -> Iterator[str]:
    """Removes leftover files, and yields a message for each. A file that the user edited is kept, and its record
    removed."""
    for folder, names in leftovers(declared).items():
        records = read_records(folder)
        for path, digest in ((Path(folder, name), records[name]["sha256"]) for name in names):
            if not path.is_file():
                continue
            if sha256_of_file(path) == digest:
                path.unlink()
                yield f"removed {path}: an earlier grid made it, and this one does not"
            else:
                yield f"left {path}: an earlier grid made it, this one does not, and it was edited"
        remove_folder_records(folder, names)
        _remove_if_empty(folder)


def _folders_with_records() -> list[str]:
    folders = [folder for top in FOLDERS for folder, _, files in os.walk(top) if RECORDS_FILE in files]
    return sorted(["results", *folders])


def _leftover_names(folder: str, declared: Collection[str]) -> list[str]:
    if folder in declared:  # its job replaces all that is in it
        return []
    return [name for name in read_records(folder) if f"{folder}/{name}" not in declared]


def _remove_if_empty(folder: str) -> None:
    if all(name in NEGLIGIBLE for _, _, names in os.walk(folder) for name in names):
        shutil.rmtree(folder)
