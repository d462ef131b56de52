"""Measures what the workflow costs beside its measurements: `python benchmarks/grid.py [--configfile FILE] [TARGET]`.

Snakemake measures a grid, by default the small one of the README, in an empty folder, up to TARGET, by default `all`:
tables, documents, figures and page. Then a loop starts the same programs with the same specifications, one after the
other, as a shell script does: each run once without a profiler, and once under PyTorch's.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from read_capture import ROOT, cost


def list_commands(runs: Path, folder: Path) -> list[list[str]]:
    """The commands that measure again what is in the folder of runs."""
    commands = []
    for stage in ("timing", "capture"):
        for path in sorted(runs.glob(f"*/{stage}.json")):
            spec = json.dumps(json.loads(path.read_text())["key"]["spec"])
            output = folder / f"{path.parent.name}_{stage}.json"
            profiler = ["--profiler", "torch", "--capture", str(output.with_suffix(".sqlite"))]
            command = [sys.executable, "-m", "cs336_model", "--spec", spec, "--output", str(output)]
            command += ["--locks", str(folder / "locks"), *(profiler if stage == "capture" else [])]
            commands.append(command)
    return commands


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--configfile", type=Path, help="the grid to measure (default: grid=cpu of config.yaml)")
    parser.add_argument("target", nargs="?", default="all")
    options = parser.parse_args()
    grid = ["--configfile", str(options.configfile.resolve())] if options.configfile else ["--config", "grid=cpu"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", folder]
        ours = cost([*command, "--cores", "1", *grid, "--", options.target])
        commands = list_commands(Path(folder, "results", "runs"), Path(folder))
        bare = [sum(costs) for costs in zip(*map(cost, commands), strict=True)]
    print(f"snakemake --cores 1 {options.target}, and a loop over its {len(commands)} measurements:")
    for name, of_grid, of_loop in zip(("wall", "processor"), ours, bare, strict=False):
        print(f"{name} time: {of_grid:.1f} s, {of_loop:.1f} s: ratio {of_grid / of_loop:.2f}")
