"""Digests of what results are made from: of code without comments, of other files by their content.

The time of a file never counts. It only saves reading the file again: a digest is remembered with the inode, the size,
and the times at which content (mtime) and inode (ctime) changed. Nobody can set ctime, so `cp -p` and `touch -d` hide
nothing.
"""

import hashlib
import json
import os
import re
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cs336_model.program.code_digest import bytes_digest, code_digest
from profile_grid.files import write_text

CACHE_FORMAT = 1  # of a cache file
SETTLED_NS = 2 * 10**9  # a file that changed less than this ago may change again without another time
JINJA_COMMENT = re.compile(rb"\{#([-+]?).*?([-+]?)#\}", re.DOTALL)  # the signs control white space around it


def digest_of_text(text: str) -> str:
    """A digest of a text."""
    return bytes_digest(text.encode())


def digest_of_settings(settings: object) -> str:
    """A digest of settings that JSON can hold; the order of keys does not count."""
    return digest_of_text(json.dumps(settings, sort_keys=True))


def digest_of_source(name: str, content: bytes) -> str:
    """A digest of a source file. Comments in .py, .toml and .j2 do not count, nor do docstrings in .py."""
    if name.endswith(".py"):
        return code_digest(content)
    if name.endswith(".toml"):
        return digest_of_settings(tomllib.loads(content.decode()))
    if name.endswith(".j2"):
        content = JINJA_COMMENT.sub(rb"{#\1#\2#}", content)
    return bytes_digest(content)


def sha256_of_file(path: str | Path) -> str:
    """The SHA-256 of a file of any size."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_cache(path: Path, is_entry: Callable[[Any], bool]) -> dict[str, Any]:
    """The entries that `write_cache` left in a file and `is_entry` accepts; none if it cannot be read."""
    try:
        cached = json.loads(path.read_text())
        entries = cached["files"] if cached["format"] == CACHE_FORMAT else {}
        return {key: entry for key, entry in entries.items() if is_entry(entry)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def write_cache(path: Path, entries: Mapping[str, Any]) -> None:
    """Keeps entries for the next process, if there is a folder for the file, and it can be written to."""
    if path.parent.is_dir():
        with suppress(OSError):
            write_text(path, json.dumps({"format": CACHE_FORMAT, "files": entries}))


class FileDigests:
    """Digests of files by their content. A file is read again only if it has changed since it was read, or had changed
    less than SETTLED_NS before that.

    `cached` is the `known` of an earlier process: {path: [inode, size, mtime in ns, ctime in ns, digest]}.
    """

    def __init__(self, cached: Mapping[str, list] | None = None):
        self.known: dict[str, list] = dict(cached or {})
        self.has_new_entries = False

    def __call__(self, path: str) -> str | None:
        """The digest of the file's content; None if there is no such file."""
        try:
            state = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        identity = [state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns]
        *known_identity, digest = self.known.get(path, [None])  # of an unknown file, no identity and no digest
        if known_identity != identity:
            digest = sha256_of_file(path)
            if time.time_ns() - state.st_ctime_ns > SETTLED_NS:
                self.known[path] = [*identity, digest]
                self.has_new_entries = True
        return digest

    def of_all(self, paths: Iterable[str]) -> str:
        """One digest of the names and contents of these files; a missing file counts as such."""
        return digest_of_text("".join(f"{path}\0{self(path)}\0" for path in paths))
