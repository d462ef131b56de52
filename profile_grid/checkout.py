"""The commit of this project."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def git_state() -> dict:
    """`git_commit`, and `git_clean`: whether no tracked file differs from it. None for both unless this folder is the
    top of a repository: a copy of the project may be inside somebody else's."""
    try:
        top, commit = _git_output("rev-parse", "--show-toplevel", "HEAD").splitlines()
        if ROOT.samefile(top):
            changes = _git_output("status", "--porcelain", "--untracked-files=no")
            return {"git_commit": commit, "git_clean": changes == ""}
    except (FileNotFoundError, subprocess.CalledProcessError):
        pass
    return {"git_commit": None, "git_clean": None}


def _git_output(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
