"""Turns recordings (what a profiler wrote) into captures, which contain nothing about the host."""

import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

from kernel_recorder.in_process.handover import STEP, UNFINISHED, trace_file
from kernel_recorder.program import NSYS_LOG_FILE, REPORT_FILE
from kernel_tables import files, whole_files
from kernel_tables.errors import TraceError
from kernel_tables.kineto.capture import CaptureError, capture_tables, write_capture
from kernel_tables.kineto.trace import CALL, DEVICE_KINDS, TorchTrace
from kernel_tables.reading import nsys, publishable
from kernel_tables.reading.schema import METADATA, RANK_KEY, RANKS_KEY, WINDOW_KEY

DEFAULT_OUTPUT, EXPORT_FILE = Path("recording.sqlite"), "export.sqlite"
# The last range `step`: a step of the recorder encloses those that the program opens, so it ends last.
LAST_STEP_QUERY = """
    SELECT event.rowid FROM NVTX_EVENTS AS event LEFT JOIN StringIds ON StringIds.id = event.textId
    WHERE COALESCE(event.text, StringIds.value) = ?
    ORDER BY event.end IS NULL DESC, event.end DESC, event.start LIMIT 1
"""


def free_output(requested: Path | None, *, has_ranks: bool = True) -> Path:
    """The path for the capture: `requested`, or the first free default. With `has_ranks`, captures of other ranks may
    be written next to it. TraceError if a file of `requested` or of a rank exists, or none can be written."""
    output = _free_path(DEFAULT_OUTPUT, has_ranks=has_ranks) if requested is None else requested
    if existing := _existing_file(output, has_ranks=has_ranks):
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
class Recording:
    """What was recorded of one process: the trace of its PyTorch, or its part of nsys's report of all processes.

    `rank` is its number if there are several ranks; `window_facts` are those of its Outcome.
    """

    pid: int
    by_nsys: bool
    torch_version: str
    ended_in_step: bool = False  # the window ended inside the last range `step`
    rank: int | None = None
    rank_count: int = 1
    window_facts: dict[str, object] = field(default_factory=dict)


def write_captures(
    handover_folder: Path, output: Path, recordings: Sequence[Recording], *, has_ranks: bool = True
) -> list[Path | TraceError]:
    """Returns for each recording the path of its capture, or the error why there is none.

    The path is `output`, for a rank N > 0 `output_rankN`; if a file has appeared there meanwhile, the next free number.
    Captures appear complete or not at all. Raises TraceError if nsys wrote no report or cannot export it, OSError if
    the disk is full; then there is no capture.
    """
    output = _free_path(output, has_ranks=has_ranks)
    if any(recording.by_nsys for recording in recordings):
        _export_report(handover_folder)  # one report of all processes
    captures: list[Path | TraceError] = []
    try:
        for recording in recordings:
            rank = recording.rank
            path = output.with_name(f"{output.stem}_rank{rank}{output.suffix}") if rank else output
            try:
                _write_capture(handover_folder, recording, path)
                captures.append(path)
            except TraceError as error:
                captures.append(error)
    except OSError:
        for path in captures:
            if isinstance(path, Path):
                path.unlink()
        raise
    return captures


def _write_capture(handover_folder: Path, recording: Recording, path: Path) -> None:
    with whole_files.written_whole(path) as partial:
        if recording.by_nsys:
            process = None if recording.rank is None else recording.pid  # None: everything in the report
            publishable.write_publishable(handover_folder / EXPORT_FILE, partial, process=process)
        else:
            _convert_trace(trace_file(handover_folder, recording.pid), partial, recording.torch_version)
        with files.full_disk_as_os_error(path):
            if recording.ended_in_step:
                name_unfinished_step(partial)
            _add_facts(partial, recording)


def _add_facts(capture: Path, recording: Recording) -> None:
    """Adds the rank, if there are several, and the window's facts to the table of facts, if the capture has one."""
    facts = [] if recording.rank is None else [(RANK_KEY, str(recording.rank)), (RANKS_KEY, str(recording.rank_count))]
    if recording.window_facts:
        facts.append((WINDOW_KEY, json.dumps(recording.window_facts)))
    with closing(sqlite3.connect(capture)) as database, database:
        existing = _table_names(database)
        table = next((name for name in METADATA if name in existing), None)
        if table:
            database.executemany(f"INSERT INTO {table} (name, value) VALUES (?, ?)", facts)


def _table_names(database: sqlite3.Connection) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM sqlite_master")}


def _export_report(handover_folder: Path) -> None:
    """Exports the report with the payloads of NCCL's calls. TraceError if there is none, or nsys fails."""
    report = handover_folder / REPORT_FILE
    if not report.exists():
        log = (handover_folder / NSYS_LOG_FILE).read_text(errors="replace")
        raise TraceError(f"nsys wrote no report; it said: {nsys.last_line(log)}")
    nsys.export_report(report, handover_folder / EXPORT_FILE, payloads=True)


def _convert_trace(trace_path: Path, capture: Path, torch_version: str) -> None:
    """Writes the trace of PyTorch's profiler as a capture. TraceError if it has no events."""
    try:
        trace = TorchTrace(trace_path)
        if not trace.count(*trace.columns):
            raise TraceError("nothing of PyTorch ran in the window; take a later or longer one")
        on_gpu = trace.count(*DEVICE_KINDS, CALL) > 0
        tables = capture_tables(trace, on_gpu, torch_version)
    except (CaptureError, ValueError) as error:
        raise TraceError(f"PyTorch's profiler left no usable trace: {error}") from error
    with files.full_disk_as_os_error(capture):
        write_capture(tables, capture)


def _free_path(path: Path, *, has_ranks: bool) -> Path:
    """The path if it is free, else the first free one of recording-2.sqlite, recording-3.sqlite, ..."""
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    candidates = chain([path], numbered)
    return next(candidate for candidate in candidates if not _existing_file(candidate, has_ranks=has_ranks))


def _existing_file(path: Path, *, has_ranks: bool) -> Path | None:
    """An existing file that would be overwritten or, with `has_ranks`, mistaken for a rank's capture; else None."""
    if path.exists() or path.is_symlink():
        return path
    rank_filename = re.compile(rf"{re.escape(path.stem)}_rank\d+{re.escape(path.suffix)}")
    neighbours = path.parent.iterdir() if has_ranks and path.parent.is_dir() else ()
    return next((file for file in neighbours if rank_filename.fullmatch(file.name)), None)


def name_unfinished_step(capture: Path) -> None:
    """Gives the last step of a new capture the name UNFINISHED; a capture without steps is unchanged."""
    with closing(sqlite3.connect(capture)) as database, database:
        if "NVTX_EVENTS" in _table_names(database):  # nsys writes no empty tables
            update = f"UPDATE NVTX_EVENTS SET text = ?, textId = NULL WHERE rowid = ({LAST_STEP_QUERY})"
            database.execute(update, (UNFINISHED, STEP))
