"""Writes and reads a zip archive of results, whose bytes depend only on the results. Imports nothing heavy.

An archive may come from anybody. Only files that its manifest lists with size and digest are unpacked, only under names
of results, and only up to a limit of size. Links and devices are refused.
"""

import hashlib
import json
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from kernel_tables.clean_text import visible
from profile_grid.errors import OutsideError
from profile_grid.files import replacing
from profile_grid.results.results import FileIdentity
from profile_grid.study.catalogue import DOCUMENTS, FIGURES, MERGED_NAMES, TABLE_NAMES
from profile_grid.study.dimensions import DIMENSIONS
from profile_grid.study.stages import STAGES, TIMING
from profile_grid.typed_json import Mismatch, parse_as

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"  # of a run, or of a file in tables/markdown, tables/latex or tables/typst
FORMAT = 1
MANIFEST = "manifest.json"
NO_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest of a zip archive
MAX_BYTES = 64 * 2**30
MAX_FILES = 500_000
MAX_MANIFEST_BYTES = 256 * 2**20
MAX_MESSAGE_CHARACTERS = 300  # of text from an archive in an error
CHUNK_BYTES = 2**20
# What decides which questions a grid has; `steps_warmed` decides about the question on warm-up.
RUN_COLUMNS = (*(dimension.key for dimension in DIMENSIONS), *(stage.status_column for stage in STAGES), "steps_warmed")
_RESULT_NAMES = {stage.result_file for stage in STAGES}
_STATUS_FILES = [stage.status_file for stage in STAGES if stage.tables_of_a_run]
_NUMBER_TYPES, _NONE_TYPES = (int, float), (type(None),)
_TYPES_OF_NUMBERS = {"steps_warmed": _NUMBER_TYPES} | {  # by column
    dimension.key: _NUMBER_TYPES if dimension.default is not None else _NUMBER_TYPES + _NONE_TYPES
    for dimension in DIMENSIONS
    if dimension.value_schema.get("type") == "integer"
}


def _alternatives(*lists: Iterable[str]) -> str:
    """A pattern that matches any of the names."""
    return "|".join(re.escape(name) for names in lists for name in names)


_capture_files = [Path(name) for stage in STAGES for name in stage.files]  # results and status files are not in `files`
_capture_names = [rf"{re.escape(path.stem)}(_rank[0-9]+)?{re.escape(path.suffix)}" for path in _capture_files]
_SOURCE_FILE = (
    rf"grid\.json|tables/({_alternatives(MERGED_NAMES)})\.(csv|parquet)|tables/provenance\.json"
    r"|page/timeline\.(csv|parquet)|page/trace\.json\.gz"
    rf"|runs/{NAME}/({_alternatives(_RESULT_NAMES, _STATUS_FILES)})"
    rf"|processes/steps\.(csv|parquet)|processes/[0-9]+/{NAME}/{re.escape(TIMING.result_file)}"
)
_CAPTURE_FILE = rf"runs/{NAME}/({'|'.join(_capture_names)})"
# NAME would also match `made.json`, the record of what made the files of a folder, which is not shared.
_DERIVED_FILE = (
    rf"tables/({_alternatives(TABLE_NAMES)})\.(csv|parquet)|tables/README\.md"
    rf"|tables/(markdown|latex|typst)/({NAME}/)?(?!made\.json){NAME}"
    rf"|report\.html|answers/({_alternatives(['answers'], DOCUMENTS)})\.(md|tex|typ)"
    rf"|figures/({_alternatives(FIGURES)})\.(svg|png)"
)


def packed_files(results: Path, *, captures: bool) -> list[str]:
    """The files below `results` to pack, relative and sorted, without symbolic links; captures only if requested."""
    paths = (path for path in results.rglob("*") if path.is_file() and not path.is_symlink())
    names = (path.relative_to(results).as_posix() for path in paths)
    return sorted(name for name in names if is_content(name) and (captures or not is_capture(name)))


def is_content(name: str) -> bool:
    """Whether an archive may hold a file of this name."""
    return is_source(name) or is_capture(name) or bool(re.fullmatch(_DERIVED_FILE, name))


def is_source(name: str) -> bool:
    """Whether the file is a result of a run, or a table, plan or timeline from which other files are made."""
    return bool(re.fullmatch(_SOURCE_FILE, name))


def is_capture(name: str) -> bool:
    """Whether the file is a recording next to a result: a capture, such as capture.sqlite or, of the second rank,
    capture_rank1.sqlite, a history of memory, or counters. A .nsys-rep is never packed: it may say more of its host."""
    return bool(re.fullmatch(_CAPTURE_FILE, name))


class BadArchive(OutsideError):
    """An archive is damaged, or was not made by `snakemake pack`. The message is one line for the user."""

    def __init__(self, path: Path, problem: str):
        quoted = visible(problem)[:MAX_MESSAGE_CHARACTERS]
        super().__init__(f"{path}: {quoted}; ask for a new one, made by snakemake pack")


@dataclass(frozen=True)
class Manifest:
    format: int
    version: str  # of the project that packed it
    grid: str  # its name
    runs: list[dict]  # rows of the table of runs with RUN_COLUMNS, which determine the questions
    files: dict[str, FileIdentity]  # by name


def write_archive(results: Path, path: Path, *, captures: bool, version: str, grid: str, runs: list[dict]) -> Manifest:
    """Packs the results; a failure leaves no incomplete archive. Every file is read twice, since the manifest with the
    digests comes first, and results may not fit into memory."""
    contents = ((name, packed_content(results / name)) for name in packed_files(results, captures=captures))
    files = {name: FileIdentity(len(content), hashlib.sha256(content).hexdigest()) for name, content in contents}
    manifest = Manifest(FORMAT, version, grid, runs, files)
    with replacing(path) as partial, zipfile.ZipFile(partial, "w") as archive:
        _add(archive, MANIFEST, json.dumps(asdict(manifest), indent=1, allow_nan=False).encode())
        for name in files:
            _add(archive, name, packed_content(results / name))
    return manifest


def packed_content(path: Path) -> bytes:
    """The content of a file, as it is packed. The result of a measurement has salted digests of the environment
    variables that the user named. They are left out, since short values could be guessed from their digests."""
    content = path.read_bytes()
    result = json.loads(content) if path.name in _RESULT_NAMES else None
    if not isinstance(result, dict) or "environment" not in result:
        return content
    result["environment"] |= {"salt": None, "digests": {}}
    return json.dumps(result, indent=1, allow_nan=False).encode() + b"\n"


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Adds a file without a time, owner or mode of this machine."""
    info = zipfile.ZipInfo(name, NO_TIME)
    info.create_system, info.external_attr = 3, 0o644 << 16  # 3: Unix, whose file modes are in the upper 16 bits
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, content, compresslevel=6)


def read_manifest(path: Path) -> Manifest:
    """The manifest of an archive. Raises BadArchive if the archive is invalid, OSError if it cannot be opened."""
    with _open_archive(path) as (_, manifest):
        return manifest


def unpack(path: Path, folder: Path) -> Manifest:
    """Writes below `folder` every file that the manifest of an archive lists. Raises BadArchive if a file is not the
    one that the manifest lists, FileExistsError if it exists already, OutsideError if the disk is too small."""
    with _open_archive(path) as (archive, manifest):
        folder.mkdir(parents=True, exist_ok=True)
        size, free = sum(entry.bytes for entry in manifest.files.values()), shutil.disk_usage(folder).free
        if size > free:
            raise OutsideError(
                f"{path}: it needs {size:,} bytes, and {folder} has {free:,} free; free some space, or choose another"
                " folder: --directory"
            )
        for name, entry in manifest.files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            digest = hashlib.sha256()
            with archive.open(name) as packed, target.open("xb") as unpacked:
                while chunk := packed.read(CHUNK_BYTES):
                    digest.update(chunk)
                    unpacked.write(chunk)
            if digest.hexdigest() != entry.sha256:
                raise BadArchive(path, f"{name} differs from the file that was packed")
        return manifest


@contextmanager
def _open_archive(path: Path) -> Iterator[tuple[zipfile.ZipFile, Manifest]]:
    """An open archive and its manifest, which lists the same files, with their sizes. Raises BadArchive otherwise."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if not members or members[0].filename != MANIFEST:
                raise BadArchive(path, f"it does not begin with {MANIFEST}, so it holds no results")
            if problem := _refusal_reason(members):
                raise BadArchive(path, problem)
            manifest = _manifest(path, archive.read(members[0]))
            if problem := _difference(members[1:], manifest.files):
                raise BadArchive(path, problem)
            yield archive, manifest
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise BadArchive(path, f"it is damaged ({error})") from error


def _refusal_reason(members: list[zipfile.ZipInfo]) -> str | None:
    """Why an archive is refused before its manifest is read; None if it is not."""
    if len(members) > MAX_FILES:
        return f"it holds {len(members)} files; results have at most {MAX_FILES}"
    if members[0].file_size > MAX_MANIFEST_BYTES:
        return f"its {MANIFEST} has {members[0].file_size} bytes"
    if (size := sum(member.file_size for member in members)) > MAX_BYTES:
        return f"it needs {size / 2**30:.0f} GiB; results have at most {MAX_BYTES // 2**30}"
    for member in members:
        # `orig_filename` is the name as it is in the archive; `filename` may be cut by zipfile
        if member.filename != MANIFEST and not is_content(member.orig_filename):
            return f"it holds {member.orig_filename[:80]!r}, which is not a file of results"
        if member.flag_bits & 0x1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            return f"{member.filename} is encrypted, or compressed by another method than deflate"
        if (kind := member.external_attr >> 28) not in (0, 0o10):  # not given; a regular file
            return f"{member.filename} is a link or a device, not a file (type {kind:o})"
    return None


def _manifest(path: Path, content: bytes) -> Manifest:
    """The manifest with this content. Raises BadArchive, which names the archive at `path`, if it is not valid."""
    try:
        values = json.loads(content)
        if isinstance(values, Mapping) and values.get("format") != FORMAT:
            raise BadArchive(path, f"its format is {values.get('format')!r}, not {FORMAT}")
        manifest = parse_as(Manifest, values)
        if not all(_is_run(row) for row in manifest.runs):
            raise Mismatch(f"runs are not rows of {', '.join(RUN_COLUMNS)}")
        return manifest
    except (ValueError, RecursionError, Mismatch) as error:
        raise BadArchive(path, f"its {MANIFEST} cannot be read ({error})") from error


def _is_run(row: Mapping) -> bool:
    """Whether a row has RUN_COLUMNS, with numbers where questions compare them, and otherwise texts or None."""
    types_by_column = {column: _TYPES_OF_NUMBERS.get(column, (str, *_NONE_TYPES)) for column in RUN_COLUMNS}
    return all(column in row and isinstance(row[column], types) for column, types in types_by_column.items())


def _difference(members: list[zipfile.ZipInfo], files: Mapping[str, FileIdentity]) -> str | None:
    """How the files of the archive differ from its manifest; None if they do not."""
    sizes = {member.filename: member.file_size for member in members}
    if len(sizes) < len(members):
        return "it holds two files of the same name"
    listed_sizes = {name: entry.bytes for name, entry in files.items()}
    if differing := sorted(name for name, _ in sizes.items() ^ listed_sizes.items()):  # in only one of the two
        return f"{differing[0]} is not the file that its {MANIFEST} lists"
    return None
