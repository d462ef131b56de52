"""One file that holds results: a zip archive whose bytes depend on nothing but them. Imports nothing heavy.

What is read comes from somebody else: only files that the manifest lists by size and digest are written, under the
names that results have, and no more of them than a limit. Nothing in an archive is a link, a folder or a program.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from kernel_tables.clean_text import visible
from profile_grid.errors import OutsideError
from profile_grid.files import replacing
from profile_grid.results.typed_json import Mismatch, parse_as
from profile_grid.sharing.contents import is_content, packed_files
from profile_grid.study.dimensions import DIMENSIONS
from profile_grid.study.stages import STAGES

FORMAT = 1
MANIFEST = "manifest.json"
NO_TIME = (1980, 1, 1, 0, 0, 0)
MOST_BYTES = 64 * 2**30
MOST_FILES = 500_000
MOST_MANIFEST_BYTES = 256 * 2**20
MOST_SAID = 300  # characters of what an archive itself may say in an error
PIECE = 2**20
RUN_COLUMNS = (*(one.key for one in DIMENSIONS), *(stage.status_column for stage in STAGES), "steps_warmed")
_RESULTS = {stage.result for stage in STAGES}
_INTEGERS = [one for one in DIMENSIONS if one.value_schema.get("type") == "integer"]
_KINDS = {one.key: (int, float) if one.default is not None else (int, float, type(None)) for one in _INTEGERS}
_KINDS |= {"steps_warmed": (int, float)}


class BadArchive(OutsideError):
    """An archive is none of ours, is damaged, or holds what no results hold; the message is one line."""

    def __init__(self, path: Path, what: str):
        super().__init__(f"{path}: {visible(what)[:MOST_SAID]}; ask for it again: snakemake pack makes such archives")


@dataclass(frozen=True)
class Entry:
    """One file of an archive."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What an archive holds: its format, the version that packed it, what the grid asks, the files by name.

    `runs` are rows of the table of runs, with RUN_COLUMNS: they say which questions these can answer.
    """

    format: int
    version: str
    grid: str
    runs: list[dict]
    files: dict[str, Entry]


def write_archive(results: Path, path: Path, *, captures: bool, version: str, grid: str, runs: list[dict]) -> Manifest:
    """Packs the results; the archive appears whole or not at all."""
    files = {name: _entry(packed_content(results / name)) for name in packed_files(results, captures=captures)}
    manifest = Manifest(FORMAT, version, grid, runs, files)
    with replacing(path) as beside, zipfile.ZipFile(beside, "w") as archive:
        _add(archive, MANIFEST, json.dumps(asdict(manifest), indent=1, allow_nan=False).encode())
        for name in files:
            _add(archive, name, packed_content(results / name))
    return manifest


def packed_content(path: Path) -> bytes:
    """What is packed of a file: of a measurement's result everything but the salted digests of variables that the user
    named, since short values could be guessed from them."""
    content = path.read_bytes()
    result = json.loads(content) if path.name in _RESULTS else None
    if not isinstance(result, dict) or "environment" not in result:
        return content
    result["environment"] |= {"salt": None, "digests": {}}
    return json.dumps(result, indent=1, allow_nan=False).encode() + b"\n"


def _entry(content: bytes) -> Entry:
    return Entry(len(content), hashlib.sha256(content).hexdigest())


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Under its name alone: no time, no owner, no mode of this machine."""
    info = zipfile.ZipInfo(name, NO_TIME)
    info.create_system, info.external_attr, info.compress_type = 3, 0o644 << 16, zipfile.ZIP_DEFLATED
    archive.writestr(info, content, compresslevel=6)


def read_manifest(path: Path) -> Manifest:
    """What an archive says that it holds. Raises BadArchive where this cannot be, OSError where there is none."""
    with _opened(path) as (_, manifest):
        return manifest


def unpack(path: Path, folder: Path) -> Manifest:
    """Writes every file of an archive below `folder`, once it is what the manifest says. Raises BadArchive, and
    OutsideError where the disk is too small for it."""
    with _opened(path) as (archive, manifest):
        folder.mkdir(parents=True, exist_ok=True)
        size, free = sum(entry.bytes for entry in manifest.files.values()), shutil.disk_usage(folder).free
        if size > free:
            raise OutsideError(
                f"{path}: it would take {size:,} bytes, and {folder} has {free:,} free; free some space, or name"
                " another folder: --directory"
            )
        for name, entry in manifest.files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            digest = hashlib.sha256()
            with archive.open(name) as packed, target.open("xb") as unpacked:
                while piece := packed.read(PIECE):
                    digest.update(piece)
                    unpacked.write(piece)
            if digest.hexdigest() != entry.sha256:
                raise BadArchive(path, f"{name} is not what was packed")
        return manifest


@contextmanager
def _opened(path: Path) -> Iterator[tuple[zipfile.ZipFile, Manifest]]:
    """An archive whose table of contents can be trusted, and its manifest."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if not members or members[0].filename != MANIFEST:
                raise BadArchive(path, f"it does not begin with {MANIFEST}, so nobody's results")
            if problem := _problem(members):
                raise BadArchive(path, problem)
            manifest = _manifest(path, archive.read(members[0]))
            if problem := _difference(members[1:], manifest.files):
                raise BadArchive(path, problem)
            yield archive, manifest
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise BadArchive(path, f"it is damaged ({error})") from error


def _problem(members: list[zipfile.ZipInfo]) -> str | None:
    """Why nothing of an archive is read, whatever its manifest says."""
    if len(members) > MOST_FILES:
        return f"it holds {len(members)} files, and results no more than {MOST_FILES}"
    if members[0].file_size > MOST_MANIFEST_BYTES:
        return f"its {MANIFEST} is of {members[0].file_size} bytes"
    if (size := sum(member.file_size for member in members)) > MOST_BYTES:
        return f"it would take {size / 2**30:.0f} GiB, and results no more than {MOST_BYTES // 2**30}"
    for member in members:
        if member.filename != MANIFEST and not is_content(member.orig_filename):
            return f"it holds {member.orig_filename[:80]!r}, which no results hold"
        if member.flag_bits & 0x1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            return f"{member.filename} is encrypted, or packed in another way"
        if (kind := member.external_attr >> 28) not in (0, 0o10):
            return f"{member.filename} is a link or a device, not a file (type {kind:o})"
    return None


def _manifest(path: Path, content: bytes) -> Manifest:
    try:
        values = json.loads(content)
        if isinstance(values, Mapping) and values.get("format") != FORMAT:
            raise BadArchive(path, f"its format is {values.get('format')!r}, and {FORMAT} is read here")
        manifest = parse_as(Manifest, values)
        if not all(_is_run(row) for row in manifest.runs):
            raise Mismatch(f"runs are not rows of {', '.join(RUN_COLUMNS)}")
        return manifest
    except (ValueError, RecursionError, Mismatch) as error:
        raise BadArchive(path, f"its {MANIFEST} cannot be read ({error})") from error


def _is_run(row: Mapping) -> bool:
    """Whether questions can be asked of a row: numbers where questions compare them, text, or what does not apply."""
    return all(isinstance(row.get(column, ...), _KINDS.get(column, (str, type(None)))) for column in RUN_COLUMNS)


def _difference(members: list[zipfile.ZipInfo], files: Mapping[str, Entry]) -> str | None:
    """What the archive holds and its manifest does not, or the other way round."""
    held = {member.filename: member.file_size for member in members}
    if len(held) < len(members):
        return "it holds two files of one name"
    listed = {name: entry.bytes for name, entry in files.items()}
    if differing := sorted(name for name in {*held, *listed} if held.get(name) != listed.get(name)):
        return f"{differing[0]} is not the file that its {MANIFEST} lists"
    return None
