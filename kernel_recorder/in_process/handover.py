"""What the command and the processes of a recorded program leave for each other in a folder: the settings, which say
what to record, and the notes of the processes, one line of JSON per event."""

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from kernel_tables.whole_files import written_whole

TORCH, NSYS = "torch", "nsys"
STEPS, CALLS, RANGE, SECONDS, PROGRAM = "steps", "calls", "range", "seconds", "program"
AUTO, ALWAYS, NEVER = "auto", "always", "never"
STEP = "step"  # the range of one step
MODULES = "modules"  # what else may get ranges
UNFINISHED = "step (unfinished)"  # of the step in which the program ended
SETTINGS_FILE = "settings.json"
ENDING = "ending"  # a file that the command leaves in the folder before it ends the program
DEFAULT_SKIP = 5
DEFAULT_STEPS = 6  # the fewest whose differences the diagnosis reads


@dataclass(frozen=True)
class Settings:
    """How the window is found, and what records it.

    `window` says what opens it: the program's steps (`skip` of them go by, `steps` are recorded), of whatever kind, or
    as calls of a model; the instances of a `range` (as many); a time (`after` seconds, for `seconds`); or the program's
    own cudaProfilerStart. `quiet_end`: the command ends the program, whose Ctrl-C is then no error to report.
    `modules` says whether steps and modules get ranges: always, never, or where the program opens none of that name, or
    none at all; modules to a `depth` of names.
    """

    profiler: str = TORCH
    window: str = STEPS
    skip: int = DEFAULT_SKIP
    steps: int = DEFAULT_STEPS
    range: str | None = None
    after: float = 0.0
    seconds: float | None = None
    modules: str = AUTO
    depth: int | None = None
    quiet_end: bool = False

    def write(self, folder: Path) -> None:
        """Writes the settings for the processes of the program."""
        (folder / SETTINGS_FILE).write_text(json.dumps(asdict(self)))


def read_settings(folder: Path) -> Settings:
    """The settings that the command left in the folder."""
    return Settings(**json.loads((folder / SETTINGS_FILE).read_text()))


NOTES_FILE = "notes.jsonl"
CLAIM, CLAIMED_RUN = "claim", "claimed-run"
PATIENCE_S = 10.0  # for ranks that reach no window: their program may do something else, or have ended
RANK = "rank"  # the event of a process that has joined others
NO_RANK = "no_rank"  # of a process that has, if its run could not be determined
DROPPED = "dropped"  # of a process that starts its window over
OF_WINDOW = ("open", "steps", "closed", "saved", "lost")


class Notes:
    """The folder that the command and the processes of the program share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, event: str, **facts: object) -> None:
        """Appends one line, in one write, since other processes append to the same file. If the disk is full, or the
        folder is gone, nothing is written."""
        line = json.dumps({"event": event, "pid": os.getpid(), "unix_s": time.time(), **facts}) + "\n"
        with suppress(OSError):
            descriptor = os.open(self.folder / NOTES_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)

    def claim(self, run: str | None = None) -> bool:
        """Whether this process is recorded: the first process that calls this is, and if it is a rank, so are the other
        ranks of its `run`; none if the folder is gone."""
        try:
            if self.first_to(CLAIM) == os.getpid():
                with written_whole(self.folder / CLAIMED_RUN) as partial:
                    partial.write_text(run or "")
                return True
            return run is not None and self._claimed_run() == run
        except OSError:
            return False

    def first_to(self, what: str) -> int | None:
        """The id of the first process that called this with `what`; None if that process has not written its id yet, or
        the folder is gone."""
        path = self.folder / what
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            number = path.read_text()
            return int(number) if number else None
        except OSError:
            return None
        try:
            os.write(descriptor, str(os.getpid()).encode())
        finally:
            os.close(descriptor)
        return os.getpid()

    def _claimed_run(self) -> str | None:
        """The run of the ranks that are recorded, "" for none; waits for the process that has just claimed."""
        for _ in range(200):
            with suppress(FileNotFoundError):
                return (self.folder / CLAIMED_RUN).read_text()
            time.sleep(0.005)
        return None


def in_a_line(error: Exception) -> str:
    """The class and the first line of an error."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def is_alive(pid: int) -> bool:
    """Whether a process is running; a zombie is not."""
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
    """The notes of all processes, in order, without lines that a full disk cut off, and those of dropped windows."""
    path = folder / NOTES_FILE
    notes = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            notes.append(json.loads(line))
        except ValueError:
            continue
    dropped = {note["pid"]: place for place, note in enumerate(notes) if note["event"] == DROPPED}
    return [
        note
        for place, note in enumerate(notes)
        if note["event"] not in OF_WINDOW or place > dropped.get(note["pid"], -1)
    ]
