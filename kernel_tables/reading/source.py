"""From the path that a user names to an SQLite file that can be read: gzip, reports, damaged files."""

import gzip
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_tables.errors import TraceError
from kernel_tables.files import REPORT_SUFFIXES, first_bytes
from kernel_tables.kineto.json_stream import GZIP_MAGIC
from kernel_tables.reading.nsys import export_report
from kernel_tables.reading.soundness import require_whole_sqlite
from kernel_tables.reading.torch_trace import is_json, sqlite_of_trace


@contextmanager
def sqlite_file(path: str | os.PathLike, *, up_to_damage: bool = False) -> Iterator[Path]:
    """The path of a complete SQLite file with the content of `path`, inside the block.

    `path` is an SQLite file, an nsys report (exported by the nsys on PATH), JSON of PyTorch's profiler, or any of them
    gzipped. Unpacked and converted files are in a temporary folder that the block deletes. With `up_to_damage`, invalid
    JSON is read as far as it is valid. Raises TraceError for other files.
    """
    path = Path(path)
    _require_readable(path)
    with tempfile.TemporaryDirectory(prefix="kernel_tables_") as folder:
        if is_json(path):
            yield sqlite_of_trace(path, Path(folder) / "trace.sqlite", up_to_damage=up_to_damage)
            return
        plain = _unpacked(path, Path(folder)) if first_bytes(path, 2) == GZIP_MAGIC else path
        if plain.suffix in REPORT_SUFFIXES:
            plain = export_report(plain, Path(folder) / (plain.stem + ".sqlite"), payloads=True)
        require_whole_sqlite(plain, named=path)
        yield plain


def _require_readable(path: Path) -> None:
    if not path.exists():
        raise TraceError(f"{path}: no such file; check the path, or whether the profiler wrote a report at all")
    if path.is_dir():
        raise TraceError(f"{path}: a folder, not a capture; name the .sqlite or .nsys-rep file in it")
    if not path.is_file():
        raise TraceError(f"{path}: not a file but a pipe or a device; write the capture to a file and name that")
    if not os.access(path, os.R_OK):
        raise TraceError(f"{path}: not readable by this user; change its permissions or copy it")


def _unpacked(path: Path, folder: Path) -> Path:
    """The file in `folder` with the unpacked content of `path`, named without `.gz`."""
    target = folder / (path.stem if path.suffix == ".gz" else path.name)
    try:
        with gzip.open(path, "rb") as packed, target.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 20)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(
            f"{path}: cannot be unpacked ({error}); the gzip file is cut off or damaged: copy it again"
        ) from error
    return target
