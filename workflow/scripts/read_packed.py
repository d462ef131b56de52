"""Reads all inputs of documents, figures and page from an archive."""

import os
import tempfile
from pathlib import Path

from kernel_tables.clean_text import visible
from profile_grid import errors, files
from profile_grid.sharing.archive import MAX_MESSAGE_CHARACTERS, BadArchive, Manifest, is_capture, is_source, unpack
from profile_grid.sharing.packed_tables import TooLarge, UnusableTable, read_columns
from profile_grid.study import catalogue, table_spec
from profile_grid.tables.on_disk import declared_tables


def main(*, archive: Path, results: Path, marker: str) -> None:
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=results, prefix=".packed-") as scratch:
        manifest = unpack(archive, Path(scratch))
        require_tables(Path(scratch), archive, manifest)
        files.write_json(results / marker, {"version": manifest.version, "grid": manifest.grid})
        for name in filter(lambda name: is_source(name) or is_capture(name), manifest.files):
            (results / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(Path(scratch, name), results / name)


def require_tables(folder: Path, archive: Path, manifest: Manifest) -> None:
    """Raises BadArchive if tables would fill the memory, OutsideError if a merged table is missing or has the columns
    of another version."""
    merged_files = {
        f"tables/{name}.parquet": name for name in catalogue.merged_names(catalogue.workloads_of(manifest.runs))
    }
    source_files = [name for name in manifest.files if name.endswith(".parquet") and is_source(name)]
    try:
        columns = read_columns(folder, list(dict.fromkeys([*merged_files, *source_files])))
        for file, name in merged_files.items():
            declared_tables()[name].check_names(columns[file])
    except TooLarge as error:
        raise BadArchive(archive, str(error)) from error
    except (UnusableTable, table_spec.WrongTable) as error:
        raise errors.OutsideError(
            f"{archive}: its tables cannot be used here ({visible(str(error))[:MAX_MESSAGE_CHARACTERS]});"
            f" it was packed by version {visible(manifest.version)[:20]}: read it with that one"
        ) from error
