"""Turns recordings (what a profiler wrote) into captures, which contain nothing about the host."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

from kernel_tables.errors import RANK_KEY, RANKS_KEY, WINDOW_KEY, TraceError
from kernel_tables.files import full_disk_as_os_error, written_whole
from kernel_tables.record import nsys
from kernel_tables.record.handover import STEP, UNFINISHED, trace_file
from kernel_tables.record.program import NSYS_LOG_FILE, REPORT_FILE


def free_output(requested: Path | None) -> Path:
    """The path for the capture: `requested`, or the first free one of recording.sqlite, recording-2.sqlite and so on.
    TraceError if a file of `requested` exists, or none can be written."""
    output = requested or _free_path(Path("recording.sqlite"))
    if output.exists() or output.is_symlink():
        raise TraceError(f"{output}: the file exists and is not overwritten; name another with -o")
    try:
        with written_whole(output) as partial:
            partial.touch()
        output.unlink()
    except OSError as error:  # the folder is missing, or not writable
        raise TraceError(f"{output}: {error.strerror}; no capture can be written there; name another with -o") from None
    return output


def _free_path(path: Path) -> Path:
    """The path if it is free, else the first free one of recording-2.sqlite, recording-3.sqlite, ..."""
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return next(one for one in chain([path], numbered) if not (one.exists() or one.is_symlink()))


@dataclass(frozen=True)
class Recording:
    """What was recorded of one process: the trace of its PyTorch, or its part of nsys's report of all processes.

    `rank` is its number if there are several ranks; `window_facts` are those of its Outcome."""

    pid: int
    by_nsys: bool
    torch_version: str
    ended_in_step: bool = False  # the window ended inside the last range `step`
    rank: int | None = None
    rank_count: int = 1
    window_facts: dict[str, object] = field(default_factory=dict)

    def write(self, folder: Path, path: Path) -> None:
        """Writes the capture, completely or not at all. Raises TraceError without a usable trace."""
        from kernel_tables.publish import write_capture, write_publishable
        from kernel_tables.trace import read_recorded

        with written_whole(path) as partial:
            if self.by_nsys:
                process = None if self.rank is None else self.pid  # None: everything in the report
                write_publishable(folder / "export.sqlite", partial, process=process)
            else:
                write_capture(read_recorded(trace_file(folder, self.pid), self.torch_version), partial)
            with full_disk_as_os_error(path), closing(sqlite3.connect(partial)) as database, database:
                facts = [] if self.rank is None else [(RANK_KEY, str(self.rank)), (RANKS_KEY, str(self.rank_count))]
                facts += [(WINDOW_KEY, json.dumps(self.window_facts))] if self.window_facts else []
                found = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
                for table in {"META_DATA_EXPORT", "EXPORT_META_DATA"} & found:  # by nsys's version
                    database.executemany(f"INSERT INTO {table} (name, value) VALUES (?, ?)", facts)
                if self.ended_in_step:
                    _name_unfinished_step(database)


def _name_unfinished_step(database: sqlite3.Connection) -> None:
    """Gives the last step of a new capture the name UNFINISHED; a capture without ranges is unchanged. It is the one
    that ends last, since a step of the recorder encloses those that the program opens."""
    columns = {column for _, column, *_ in database.execute("PRAGMA table_info(NVTX_EVENTS)")}
    if columns:  # nsys writes no empty tables
        by_id = ", (SELECT value FROM StringIds WHERE id = textId)" if "textId" in columns else ", NULL"
        order = "end IS NULL DESC, end DESC, start LIMIT 1"
        last = f"SELECT rowid FROM NVTX_EVENTS WHERE COALESCE(text{by_id}) = ? ORDER BY {order}"
        # a text counts before its id
        database.execute(f"UPDATE NVTX_EVENTS SET text = ? WHERE rowid = ({last})", (UNFINISHED, STEP))


def write_captures(folder: Path, output: Path, recordings: Sequence[Recording]) -> list[Path | TraceError]:
    """Returns for each recording the path of its capture, or the error why there is none.

    The path is `output`, for a rank N > 0 `output_rankN`; if a file has appeared there meanwhile, the next free number.
    Raises TraceError if nsys wrote no report or cannot export it."""
    if any(recording.by_nsys for recording in recordings):  # one report of all processes
        if not (folder / REPORT_FILE).exists():
            said = nsys.last_line((folder / NSYS_LOG_FILE).read_text(errors="replace"))
            raise TraceError(f"nsys wrote no report; it said: {said}")
        nsys.export_report(folder / REPORT_FILE, folder / "export.sqlite", payloads=True)
    captures: list[Path | TraceError] = []
    for recording in recordings:
        suffix = f"_rank{recording.rank}" if recording.rank else ""
        path = _free_path(output.with_stem(f"{output.stem}{suffix}"))
        try:
            recording.write(folder, path)
            captures.append(path)
        except OSError as error:
            captures.append(TraceError(f"{path}: {error.strerror or error}; check the path and the space on its disk"))
        except TraceError as error:
            captures.append(error)
    return captures
