"""The archive of other people's results, from which a grid is read instead of measured."""

import os
from pathlib import Path

from snakemake.exceptions import WorkflowError

from profile_grid.sharing.archive import BadArchive, Manifest, read_manifest

MARKER = "packed.json"  # in results/, if they come from an archive


def packed_manifest(archive: str) -> Manifest:
    """The manifest of an archive. Raises WorkflowError if it cannot be read, or if the working folder has results that
    come from no archive."""
    if Path("results/grid.json").exists() and not Path("results", MARKER).exists():
        raise WorkflowError(
            f"results/ holds other results; to read {archive}, choose another working folder: --directory FOLDER"
        )
    try:
        return read_manifest(Path(archive))
    except FileNotFoundError:
        path = os.path.abspath(archive)
        raise WorkflowError(f"no archive {path}: name it by its full path if --directory is given") from None
    except (BadArchive, OSError) as error:
        raise WorkflowError(str(error)) from error
