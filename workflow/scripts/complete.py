"""Writes complete.json when every run is whole, out of memory or unsupported; else fails and names the others."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd

from profile_grid.files import write_json
from profile_grid.measuring.results import MEASURED_OR_KNOWN
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True, help="the merged table of runs")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    runs = pd.read_parquet(arguments.runs)
    lacking = runs[~runs["capture_status"].isin(MEASURED_OR_KNOWN)]
    if len(lacking):
        lines = [f"{len(lacking)} of {len(runs)} runs are incomplete; the documents say so where figures are missing:"]
        lines += [f"  {row.run}: {row.reason} (logs/{row.run}/capture.log)" for row in lacking.itertuples()]
        files = " ".join(f"results/runs/{run}/capture.json" for run in lacking["run"])
        lines.append(f"once the cause is mended: snakemake --cores 1 all --forcerun {files}")
        sys.exit("\n".join(lines))
    write_json(arguments.output, {"runs": len(runs), "statuses": runs["capture_status"].value_counts().to_dict()})


if __name__ == "__main__":
    run_command(main)
