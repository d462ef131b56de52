"""Snakemake in a folder of its own, with settings of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent


def snakemake_command(folder: Path, settings: Mapping, cores: int | str, *options: str) -> list[str]:
    """The command that measures in FOLDER by these settings, which it finds there; to be run in ROOT. Targets follow
    behind `--`."""
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / "settings.yaml"
    written.write_text(json.dumps(settings, indent=1))  # JSON is YAML
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder)]
    return [*command, "--cores", str(cores), "--configfile", str(written), *options]
