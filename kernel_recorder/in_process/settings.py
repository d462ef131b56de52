"""What to record of a program: the settings that the command passes to every process."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

TORCH, NSYS = "torch", "nsys"
STEPS, CALLS, RANGE, SECONDS, PROGRAM = "steps", "calls", "range", "seconds", "program"
AUTO, ALWAYS, NEVER = "auto", "always", "never"
STEP = "step"  # the range of one step
UNFINISHED = "step (unfinished)"  # of the step in which the program ended
FILE = "settings.json"
ENDING = "ending"  # a file that the command leaves in the folder before it ends the program
DEFAULT_SKIP = 5
DEFAULT_STEPS = 6  # the fewest whose differences the diagnosis reads


@dataclass(frozen=True)
class Settings:
    """How the window is found, and what records it.

    `window` says what opens it: the program's steps (`skip` of them go by, `steps` are recorded), of whatever kind, or
    as calls of a model; the instances of a `range` (as many); a time (`after` seconds, for `seconds`); or the program's
    own cudaProfilerStart. `quiet_end`: the command ends the program, whose Ctrl-C is then no error to report.
    `modules` says whether modules get ranges: always, never, or where the program opens none; to a `depth` of names.
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
        (folder / FILE).write_text(json.dumps(asdict(self)))


def read_settings(folder: Path) -> Settings:
    """The settings that the command left in the folder."""
    return Settings(**json.loads((folder / FILE).read_text()))
