"""The grid of the assignment, cs336-2025: which runs are planned, how large they are, and what is measured of each."""

import csv
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PLAN = Path(__file__).parent / "plan.csv"
SIZES = ["d_model", "d_ff", "num_layers", "num_heads"]
STAGES = ["timing", "capture", "counters"]
RESULT = re.compile(r"results/runs/([^/]+)/(timing|capture|counters)\.")


def planned(folder: Path) -> list[dict[str, str]]:
    """The runs and their stages: by the files in the summary of a dry run, which has a line for each file."""
    command = [sys.executable, "-m", "snakemake", "-n", "--summary", "--snakefile", ROOT / "Snakefile"]
    printed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    models = yaml.safe_load((ROOT / "config.yaml").read_text())["models"]
    stages = defaultdict(set)
    for run, stage in RESULT.findall(printed):
        stages[run].add(stage)
    rows = []
    for run, measured in stages.items():
        model, context, mode = re.fullmatch(r"([^_]+)_ctx(\d+)_(\w+)", run).groups()
        sizes = {name: str(models[model][name]) for name in SIZES}
        listed = " ".join(stage for stage in STAGES if stage in measured)
        rows.append({"run": run, "model": model, "context": context, "mode": mode, **sizes, "stages": listed})
    return sorted(rows, key=lambda row: row["run"])


def test_a_dry_run_plans_the_frozen_runs_and_stages(tmp_path):
    with PLAN.open(newline="") as file:
        frozen = list(csv.DictReader(file))
    assert len(frozen) == 60
    assert planned(tmp_path) == frozen
