"""What says which version this is, and how to cite it."""

import re
from pathlib import Path

import yaml

import kernel_tables

ROOT = Path(__file__).parents[1]


def test_the_changelog_begins_with_the_version_and_the_citation_names_it():
    version = kernel_tables.__version__
    assert re.search(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE).group(1) == version
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
