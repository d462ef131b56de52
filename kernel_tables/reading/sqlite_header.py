"""Whether a file is SQLite and complete, from its first bytes and its size."""

from pathlib import Path

from kernel_tables.errors import TraceError
from kernel_tables.files import SQLITE_MAGIC, first_bytes

HEADER_BYTES = 100


def require_whole_sqlite(path: Path, named: Path | None = None) -> None:
    """Raises TraceError unless the file is SQLite, closed by its writer, and as long as its header says."""
    named = named or path
    header = first_bytes(path, HEADER_BYTES)
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
        journal = path.with_name(path.name + suffix)
        if journal.exists() and journal.stat().st_size:
            raise TraceError(
                f"{named}: {journal.name} is next to it, so its writer has not finished;"
                " wait for the export to end, or export the report again"
            )


def _bytes_wanted(header: bytes) -> int:
    """The size in bytes by the header; 0 if it states no valid size (SQLite older than 3.7)."""
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65536 if page_size == 1 else page_size
    valid = header[24:28] == header[92:96]
    return int.from_bytes(header[28:32], "big") * page_size if valid else 0
