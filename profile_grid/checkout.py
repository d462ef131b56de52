"""Which version and which commit of this project is running."""

import subprocess
from pathlib import Path

import kernel_tables

ROOT = Path(__file__).parent.parent


def version() -> str:
    """The project's version, which is that of its libraries."""
    return kernel_tables.__version__


def git_state() -> dict:
    """The commit of this checkout and whether it was clean; None for both if this project is not a repository
    itself: a copy of it may be inside somebody else's."""
    try:
        top, commit = _git("rev-parse", "--show-toplevel", "HEAD").splitlines()
        if ROOT.samefile(top):
            return {"git_commit": commit, "git_clean": _git("status", "--porcelain", "--untracked-files=no") == ""}
    except (FileNotFoundError, subprocess.CalledProcessError):
        pass
    return {"git_commit": None, "git_clean": None}


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()
