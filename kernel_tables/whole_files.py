"""Files that appear whole or not at all. Imported by everything that writes files, in measured programs too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A path beside PATH to write to; it becomes PATH when the block ends well, and is removed when it does not.

    Where PATH is a link, what it leads to is written, and the link stays.
    """
    if path.exists() and not path.is_file():  # a terminal, a pipe: there is nothing to rename onto
        yield path
        return
    path = Path(os.path.realpath(path))
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
