"""Files that appear complete or not at all. Imported by everything that writes files, also in measured programs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A path next to `path` to write to. It is renamed to `path` when the block succeeds, and removed when it fails.

    If `path` is a link, its target is written, and the link stays. A terminal or a pipe is written directly.
    """
    if path.exists() and not path.is_file():  # a terminal, a pipe: nothing can be renamed to it
        yield path
        return
    path = Path(os.path.realpath(path))
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
