"""From what a profiler left behind to the capture that is kept, which tells nothing of the host."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

from kernel_recorder.in_process.notes import trace_file
from kernel_recorder.program import NSYS_LOG, REPORT
from kernel_recorder.unfinished import name_unfinished_step
from kernel_tables.errors import TraceError
from kernel_tables.files import full_disk_as_os_error
from kernel_tables.kineto.capture import CaptureError, capture_tables, write_capture
from kernel_tables.kineto.trace import CALL, ON_DEVICE, TorchTrace
from kernel_tables.reading.nsys import export_report
from kernel_tables.reading.publishable import write_publishable
from kernel_tables.reading.schema import METADATA, RANK_KEY, RANKS_KEY, WINDOW_KEY
from kernel_tables.whole_files import written_whole

DEFAULT, EXPORT = Path("recording.sqlite"), "export.sqlite"


def free_output(wanted: Path | None, *, of_ranks: bool = True) -> Path:
    """Where the capture will be written, and those OF_RANKS beside it. TraceError where a file of such a name is
    there, or none can be made."""
    output = _numbered(DEFAULT, of_ranks) if wanted is None else wanted
    if there := _in_the_way(output, of_ranks):
        raise TraceError(f"{there}: there is such a file, and nothing is written over it; name another with -o FILE")
    try:
        with written_whole(output) as partial:
            partial.touch()
        output.unlink()
    except OSError as error:  # the folder is missing, or closed
        raise TraceError(
            f"{output}: {error.strerror}; no capture can be written there; name another with -o"
        ) from error
    return output


@dataclass(frozen=True)
class RecordedProcess:
    """What is kept of one process: the trace of its PyTorch, or its part of nsys's report, which holds them all.

    `rank` is its number where it is one `of` several; `window` has facts about what the window held."""

    pid: int
    by_nsys: bool
    torch_version: str
    ended_in_step: bool = False  # the program ended inside the last range `step`
    rank: int | None = None
    of: int = 1
    window: dict[str, object] = field(default_factory=dict)


def keep_recordings(
    handover: Path, output: Path, recorded: Sequence[RecordedProcess], *, of_ranks: bool = True
) -> list[Path | TraceError]:
    """Of each process the path of its capture, or why there is none. The path is OUTPUT, and of a rank N that is not 0
    `output_rankN`; where one of these has appeared meanwhile, the next free number.

    A capture is whole or not there. Raises TraceError where there is nothing to make any of, OSError where the disk is
    full; then none is there."""
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
    with written_whole(path) as partial:
        if process.by_nsys:
            pid = None if process.rank is None else process.pid
            write_publishable(handover / EXPORT, partial, process=pid)
        else:
            _write_trace(trace_file(handover, process.pid), partial, process.torch_version)
        with full_disk_as_os_error(path):
            if process.ended_in_step:
                name_unfinished_step(partial)
            _note_facts(partial, process)


def _note_facts(capture: Path, process: RecordedProcess) -> None:
    """Writes into a capture which rank it is of and what its window held, where it has a table for such facts."""
    facts = [] if process.rank is None else [(RANK_KEY, str(process.rank)), (RANKS_KEY, str(process.of))]
    if process.window:
        facts.append((WINDOW_KEY, json.dumps(process.window)))
    with closing(sqlite3.connect(capture)) as database, database:
        there = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        for table in [table for table in METADATA if table in there][:1]:
            database.executemany(f"INSERT INTO {table} (name, value) VALUES (?, ?)", facts)


def _export(handover: Path) -> None:
    """Exports the report, with what NCCL says of its calls."""
    report = handover / REPORT
    if not report.exists():
        raise TraceError(f"nsys wrote no report; it said: {_last_line(handover / NSYS_LOG)}")
    export_report(report, handover / EXPORT, payloads=True)


def _write_trace(path: Path, target: Path, torch_version: str) -> None:
    try:
        trace = TorchTrace(path)
        if not trace.count(*trace.columns):
            raise TraceError("nothing of PyTorch ran in the window; take a later or longer one")
        tables = capture_tables(trace, bool(trace.count(*ON_DEVICE, CALL)), torch_version)
    except (CaptureError, ValueError) as error:
        raise TraceError(f"PyTorch's profiler left no usable trace: {error}") from error
    with full_disk_as_os_error(target):
        write_capture(tables, target)


def _numbered(path: Path, of_ranks: bool) -> Path:
    """The path, or the first of recording-2.sqlite, recording-3.sqlite, ... that is free."""
    others = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return next(free for free in chain([path], others) if not _in_the_way(free, of_ranks))


def _in_the_way(path: Path, of_ranks: bool) -> Path | None:
    """A file that is there and would be written over, or, where captures OF_RANKS may be written, taken for one."""
    if path.exists() or path.is_symlink():
        return path
    of_rank = re.compile(rf"{re.escape(path.stem)}_rank\d+{re.escape(path.suffix)}")
    beside = path.parent.iterdir() if of_ranks and path.parent.is_dir() else ()
    return next((other for other in beside if of_rank.fullmatch(other.name)), None)


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing"
