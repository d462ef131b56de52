"""Ranks that a test starts, none of which outlives it."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def started(folder: Path, commands: Sequence[Sequence[str]]) -> subprocess.Popen:
    """The launcher of these ranks, which end with it."""
    command = ["cs336_model.program.parallel.launch", "--folder", str(folder), json.dumps(commands)]
    return subprocess.Popen([sys.executable, "-m", *command])


def ended(folder: Path, commands: Sequence[Sequence[str]], limit_s: float = 30) -> int:
    """How the launcher of these ranks ends. subprocess.TimeoutExpired where it does not within the limit."""
    launcher = started(folder, commands)
    try:
        return launcher.wait(limit_s)
    finally:
        launcher.kill()


def rank_results(folder: Path, program: str, cases: Sequence) -> list[tuple]:
    """What two ranks of this module's program tell of every case, which they go through together: `rankN.json`, beside
    the `cases.json` that they read."""
    (folder / "cases.json").write_text(json.dumps(cases))
    command = [sys.executable, "-m", program, str(folder)]
    status = ended(folder, [command, command], limit_s=200)
    assert status == 0, "".join(path.read_text() for path in folder.glob("rank*.log"))
    return list(zip(*(json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)), strict=True))
