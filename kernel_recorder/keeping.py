"""Turns what a profiler wrote into captures, which contain nothing about the host."""

import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

from kernel_recorder.in_process.handover import STEP, UNFINISHED, trace_file
from kernel_recorder.program import NSYS_LOG, REPORT
from kernel_tables import files, whole_files
from kernel_tables.errors import TraceError
from kernel_tables.kineto.capture import CaptureError, capture_tables, write_capture
from kernel_tables.kineto.trace import CALL, ON_DEVICE, TorchTrace
from kernel_tables.reading import nsys, publishable
from kernel_tables.reading.schema import METADATA, RANK_KEY, RANKS_KEY, WINDOW_KEY

DEFAULT, EXPORT = Path("recording.sqlite"), "export.sqlite"
# The recorder's last range is the last of this name to end, and is around any range of the program with that name.
LAST_STEP = """
    SELECT event.rowid FROM NVTX_EVENTS AS event LEFT JOIN StringIds ON StringIds.id = event.textId
    WHERE COALESCE(event.text, StringIds.value) = ?
    ORDER BY event.end IS NULL DESC, event.end DESC, event.start LIMIT 1
"""
ANY_RANGES = "SELECT 1 FROM sqlite_master WHERE name = 'NVTX_EVENTS'"


def free_output(wanted: Path | None, *, of_ranks: bool = True) -> Path:
    """The path of the capture; with `of_ranks`, captures of other ranks may be written next to it. TraceError if a file
    of such a name exists, or none can be written."""
    output = _numbered(DEFAULT, of_ranks) if wanted is None else wanted
    if existing := _in_the_way(output, of_ranks):
        raise TraceError(f"{existing}: the file exists and is not overwritten; name another with -o FILE")
    try:
        with whole_files.written_whole(output) as partial:
            partial.touch()
        output.unlink()
    except OSError as error:  # the folder is missing, or not writable
        raise TraceError(
            f"{output}: {error.strerror}; no capture can be written there; name another with -o"
        ) from error
    return output


@dataclass(frozen=True)
class RecordedProcess:
    """The recording of one process: the trace of its PyTorch, or its part of nsys's report of all processes.

    `rank` is its number if there are several ranks; `window` has facts about the content of the window.
    """

    pid: int
    by_nsys: bool
    torch_version: str
    ended_in_step: bool = False  # the program ended inside the last range `step`
    rank: int | None = None
    rank_count: int = 1
    window: dict[str, object] = field(default_factory=dict)


def keep_recordings(
    handover: Path, output: Path, recorded: Sequence[RecordedProcess], *, of_ranks: bool = True
) -> list[Path | TraceError]:
    """Writes the capture of each process, and returns its path, or the error why there is none.

    The path is `output`, for a rank N > 0 `output_rankN`; if a file has appeared there meanwhile, the next free number.
    Captures appear complete or not at all. Raises TraceError if the profiler wrote nothing, OSError if the disk is
    full; then there is no capture.
    """
    output = _numbered(output, of_ranks)
    if any(process.by_nsys for process in recorded):
        _export(handover)  # of all of them
    captures: list[Path | TraceError] = []
    try:
        for process in recorded:
            path = output.with_name(f"{output.stem}_rank{process.rank}{output.suffix}") if process.rank else output
            try:
                _write(handover, process, path)
            except TraceError as error:
                captures.append(error)
            else:
                captures.append(path)
    except OSError:
        for path in captures:
            if isinstance(path, Path):
                path.unlink()
        raise
    return captures


def _write(handover: Path, process: RecordedProcess, path: Path) -> None:
    with whole_files.written_whole(path) as partial:
        if process.by_nsys:
            pid = None if process.rank is None else process.pid
            publishable.write_publishable(handover / EXPORT, partial, process=pid)
        else:
            _write_trace(trace_file(handover, process.pid), partial, process.torch_version)
        with files.full_disk_as_os_error(path):
            if process.ended_in_step:
                name_unfinished_step(partial)
            _note_facts(partial, process)


def _note_facts(capture: Path, process: RecordedProcess) -> None:
    """Adds the rank and the facts about the window to a capture, if it has a table for such facts."""
    facts = [] if process.rank is None else [(RANK_KEY, str(process.rank)), (RANKS_KEY, str(process.rank_count))]
    if process.window:
        facts.append((WINDOW_KEY, json.dumps(process.window)))
    with closing(sqlite3.connect(capture)) as database, database:
        existing = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        for table in [table for table in METADATA if table in existing][:1]:
            database.executemany(f"INSERT INTO {table} (name, value) VALUES (?, ?)", facts)


def _export(handover: Path) -> None:
    """Exports the report with the payloads of NCCL's calls."""
    report = handover / REPORT
    if not report.exists():
        raise TraceError(
            f"nsys wrote no report; it said: {nsys.last_line((handover / NSYS_LOG).read_text(errors='replace'))}"
        )
    nsys.export_report(report, handover / EXPORT, payloads=True)


def _write_trace(path: Path, target: Path, torch_version: str) -> None:
    try:
        trace = TorchTrace(path)
        if not trace.count(*trace.columns):
            raise TraceError("nothing of PyTorch ran in the window; take a later or longer one")
        tables = capture_tables(trace, bool(trace.count(*ON_DEVICE, CALL)), torch_version)
    except (CaptureError, ValueError) as error:
        raise TraceError(f"PyTorch's profiler left no usable trace: {error}") from error
    with files.full_disk_as_os_error(target):
        write_capture(tables, target)


def _numbered(path: Path, of_ranks: bool) -> Path:
    """The path, or the first of recording-2.sqlite, recording-3.sqlite, ... that is free."""
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return next(free for free in chain([path], numbered) if not _in_the_way(free, of_ranks))


def _in_the_way(path: Path, of_ranks: bool) -> Path | None:
    """An existing file that would be overwritten, or with `of_ranks`, mistaken for the capture of a rank."""
    if path.exists() or path.is_symlink():
        return path
    of_rank = re.compile(rf"{re.escape(path.stem)}_rank\d+{re.escape(path.suffix)}")
    neighbours = path.parent.iterdir() if of_ranks and path.parent.is_dir() else ()
    return next((file for file in neighbours if of_rank.fullmatch(file.name)), None)


def name_unfinished_step(capture: Path) -> None:
    """Gives the last step of a new capture the name UNFINISHED; a capture without steps is unchanged."""
    with closing(sqlite3.connect(capture)) as database, database:
        if not database.execute(ANY_RANGES).fetchone():
            return  # nsys writes no empty tables, and a program that crashed may have no ranges
        database.execute(
            f"UPDATE NVTX_EVENTS SET text = ?, textId = NULL WHERE rowid = ({LAST_STEP})", (UNFINISHED, STEP)
        )
