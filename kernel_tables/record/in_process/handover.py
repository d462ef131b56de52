"""What the command and the processes of a recorded program leave for each other in a folder: the settings, which say
what to record, and the notes of the processes, one line of JSON per event."""

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from kernel_tables.whole_files import written_whole

TORCH, NSYS = "torch", "nsys"  # profilers
# What opens a window; PROGRAM: the program itself, by cudaProfilerStart.
STEPS, CALLS, RANGE, SECONDS, PROGRAM = "steps", "calls", "range", "seconds", "program"
# What a step is: of an optimizer, a change of weights by a compiled one, a replay of a CUDA graph, a call of a model.
OPTIMIZER, WEIGHTS, GRAPH, MODULE = "optimizer", "weights", "graph", "module"
AUTO, ALWAYS, NEVER = "auto", "always", "never"  # whether the recorder opens ranges
STEP, MODULES = "step", "modules"  # kinds of ranges that the recorder opens; STEP is also the name of such a range
UNFINISHED = "step (unfinished)"  # the name of the range of a step in which the window ended
SETTINGS_FILE = "settings.json"
ENDING_FILE = "ending"  # the command leaves it in the folder before it ends the program
DEFAULT_SKIP = 5
DEFAULT_STEPS = 6  # the diagnosis compares steps only if there are as many
NOTES_FILE = "notes.jsonl"
CLAIM_FILE, CLAIMED_RUN_FILE = "claim", "claimed-run"
RANK_WAIT_S = 10.0  # for ranks that reach no window: their program may do something else, or have ended
RANK = "rank"  # the event of a process that has joined others
NO_RANK = "no_rank"  # the event of such a process if its run could not be determined
DROPPED = "dropped"  # the event of a process that starts its window over
WINDOW_EVENTS = ("open", "steps", "closed", "saved", "lost")  # events about one window, in their order


@dataclass(frozen=True)
class Settings:
    """How the window is found, and what records it.

    `window` says what opens it: STEPS of any kind, CALLS of a model, or instances of a RANGE (`skip` of them are
    skipped, `steps` recorded); SECONDS (from `delay_s` after the first call of a model, for `duration_s`); or the
    PROGRAM's own cudaProfilerStart. `added_ranges`: whether steps and modules get ranges. AUTO: steps, if the program
    has opened no range `step` before; modules, if it has opened no range itself. Names of modules, such as "h.0.mlp",
    have up to `depth` components (None: all). `quiet_end`: the traceback of the Ctrl-C with which the command ends the
    program is not printed.
    """

    profiler: str = TORCH
    window: str = STEPS
    skip: int = DEFAULT_SKIP
    steps: int = DEFAULT_STEPS
    range: str | None = None
    delay_s: float = 0.0
    duration_s: float | None = None
    added_ranges: str = AUTO
    depth: int | None = None
    quiet_end: bool = False

    def write(self, folder: Path) -> None:
        """Writes the settings for the processes of the program."""
        (folder / SETTINGS_FILE).write_text(json.dumps(asdict(self)))


def read_settings(folder: Path) -> Settings:
    """The settings that the command left in the folder."""
    return Settings(**json.loads((folder / SETTINGS_FILE).read_text()))


class Notes:
    """The notes of this process, in the folder that the command and the processes of the program share.

    Its events: python, or old_python; torch, once it is imported; RANK or NO_RANK; profile, if the program uses
    PyTorch's profiler; elsewhere, if another process is recorded; the WINDOW_EVENTS; refused, if the profiler did not
    start; DROPPED; exit. Recorder and RankCoordinator add most of them, with facts that Outcome reads.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, event: str, **facts: object) -> None:
        """Appends one line, in one write, since other processes append to the same file. If the disk is full, or the
        folder is gone, nothing is written."""
        line = json.dumps({"event": event, "pid": os.getpid(), "unix_s": time.time(), **facts}) + "\n"
        with suppress(OSError):
            _write_at_once(self.folder / NOTES_FILE, line, os.O_APPEND)

    def claim(self, run: str | None = None) -> bool:
        """Whether this process is recorded: the first process that calls this is, and if it is a rank, so are the other
        ranks of its `run`; none if the folder is gone."""
        try:
            if self.first_process_to(CLAIM_FILE) == os.getpid():
                with written_whole(self.folder / CLAIMED_RUN_FILE) as partial:
                    partial.write_text(run or "")
                return True
            return run is not None and self._claimed_run() == run
        except OSError:
            return False

    def first_process_to(self, action: str) -> int | None:
        """The id of the first process that called this with `action`; None if that process has not written its id yet,
        or the folder is gone."""
        path = self.folder / action
        try:
            _write_at_once(path, str(os.getpid()), os.O_EXCL)
        except FileExistsError:
            text = path.read_text()
            return int(text) if text else None
        except FileNotFoundError:
            return None
        return os.getpid()

    def _claimed_run(self) -> str | None:
        """The run of the ranks that are recorded, "" if no ranks are; None if it is unknown after a second."""
        for _ in range(200):
            with suppress(FileNotFoundError):
                return (self.folder / CLAIMED_RUN_FILE).read_text()
            time.sleep(0.005)
        return None


def _write_at_once(path: Path, text: str, flags: int) -> None:
    """Writes the text to a file in one system call. The file is created if missing, and opened with `flags` as well."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def one_line_error(error: Exception) -> str:
    """The class and the first line of an error."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def is_alive(pid: int) -> bool:
    """Whether a process is running; a zombie is not, and one that cannot be examined is."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except (OSError, IndexError):  # of another user, or no /proc
        return True


def trace_file(folder: Path, pid: int) -> Path:
    """The path of the trace of a process."""
    return folder / f"trace-{pid}.json"


def read_notes(folder: Path) -> list[dict]:
    """The notes of all processes, in order, except those on dropped windows and lines that a full disk cut off."""
    path = folder / NOTES_FILE
    notes = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(ValueError):
            notes.append(json.loads(line))
    last_drops = {note["pid"]: index for index, note in enumerate(notes) if note["event"] == DROPPED}
    return [
        note
        for index, note in enumerate(notes)
        if note["event"] not in WINDOW_EVENTS or index > last_drops.get(note["pid"], -1)
    ]
