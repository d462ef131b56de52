"""What says which version this is, and how to cite it."""

import re
import subprocess
from pathlib import Path

import yaml

import kernel_tables
from profile_grid import checkout

ROOT = Path(__file__).parents[1]


def test_the_changelog_begins_with_the_version_and_the_citation_names_it():
    version = kernel_tables.__version__
    assert re.search(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE).group(1) == version
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version


def test_a_copy_within_somebody_elses_repository_has_no_commit(tmp_path, monkeypatch):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "theirs"], check=True)
    (tmp_path / "copy").mkdir()
    monkeypatch.setattr(checkout, "ROOT", tmp_path / "copy")
    assert checkout.git_state() == {"git_commit": None, "git_clean": None}
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    assert checkout.git_state()["git_clean"] is True
