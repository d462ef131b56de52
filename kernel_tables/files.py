"""Files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A path beside PATH to write to; it becomes PATH when the block ends well, and is removed when it does not."""
    if path.exists() and not path.is_file():  # /dev/stdout, a pipe: there is nothing to rename onto
        yield path
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
