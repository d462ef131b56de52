"""From the path that a user names to an SQLite file that can be read: gzip, reports, damaged files."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_tables.errors import TraceError

GZIP_MAGIC = b"\x1f\x8b"
SQLITE_MAGIC = b"SQLite format 3\x00"
REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
HEADER_BYTES = 100


@contextmanager
def sqlite_file(path: str | os.PathLike) -> Iterator[Path]:
    """The path of a whole SQLite file with what PATH holds, for as long as the block lasts.

    PATH is an SQLite file, an nsys report (exported by the nsys on PATH), or either of them gzipped. What is unpacked
    or exported lies in a temporary folder that goes with the block. Raises TraceError for what is none of these.
    """
    path = Path(path)
    _require_readable(path)
    with tempfile.TemporaryDirectory(prefix="kernel_tables_") as folder:
        plain = _unpacked(path, Path(folder)) if _first_bytes(path, 2) == GZIP_MAGIC else path
        if plain.suffix in REPORT_SUFFIXES:
            plain = _exported(plain, Path(folder))
        require_whole_sqlite(plain, named=path)
        yield plain


def report_beside(path: Path) -> Path | None:
    """The nsys report that an SQLite file was exported from, where one of the same name lies beside it."""
    stem = path.name.removesuffix(".gz").removesuffix(".sqlite")
    found = (path.with_name(stem + suffix) for suffix in REPORT_SUFFIXES)
    return next((report for report in found if report != path and report.exists()), None)


def require_whole_sqlite(path: Path, named: Path | None = None) -> None:
    """Raises TraceError unless the file is SQLite, closed by its writer, and as long as its header says."""
    named = named or path
    header = _first_bytes(path, HEADER_BYTES)
    if not header:
        raise TraceError(f"{named}: the file is empty; the export probably failed: export the report again")
    if not header.startswith(SQLITE_MAGIC):
        raise TraceError(
            f"{named}: not an SQLite file (it begins with {header[:8]!r});"
            " give an export made by `nsys export --type sqlite`, or a .nsys-rep"
        )
    if len(header) < HEADER_BYTES or _bytes_wanted(header) > path.stat().st_size:
        raise TraceError(
            f"{named}: cut off: {path.stat().st_size} bytes where its header says {_bytes_wanted(header)};"
            " the copy or the export did not finish: copy or export it again"
        )
    for suffix in ("-journal", "-wal"):
        beside = path.with_name(path.name + suffix)
        if beside.exists() and beside.stat().st_size:
            raise TraceError(
                f"{named}: {beside.name} lies beside it, so its writer has not finished;"
                " wait for the export to end, or export the report again"
            )


def _bytes_wanted(header: bytes) -> int:
    """The size in bytes that a header promises; 0 where it makes no valid promise (SQLite older than 3.7)."""
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65536 if page_size == 1 else page_size
    valid = header[24:28] == header[92:96]
    return int.from_bytes(header[28:32], "big") * page_size if valid else 0


def _require_readable(path: Path) -> None:
    if not path.exists():
        raise TraceError(f"{path}: no such file; check the path, or whether the profiler wrote a report at all")
    if path.is_dir():
        raise TraceError(f"{path}: a folder, not a capture; name the .sqlite or .nsys-rep file in it")
    if not os.access(path, os.R_OK):
        raise TraceError(f"{path}: not readable by this user; change its permissions or copy it")


def _first_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        return file.read(count)


def _unpacked(path: Path, folder: Path) -> Path:
    """The file in FOLDER with what the gzipped PATH holds, named without `.gz`."""
    target = folder / (path.stem if path.suffix == ".gz" else path.name)
    try:
        with gzip.open(path, "rb") as packed, target.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 20)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(
            f"{path}: cannot be unpacked ({error}); the gzip file is cut off or damaged: copy it again"
        ) from error
    return target


def _exported(report: Path, folder: Path) -> Path:
    from kernel_tables.nsys import export_report

    return export_report(report, folder / (report.stem + ".sqlite"))
