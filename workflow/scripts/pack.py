"""Packs results for somebody else: `python -m workflow.scripts.pack --results results --output results.zip`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pandas as pd

from profile_grid.checkout import version
from profile_grid.errors import OutsideError
from profile_grid.sharing.archive import RUN_COLUMNS, write_archive
from profile_grid.sharing.contents import is_capture
from profile_grid.study.catalogue import TABLES
from workflow.command import run_command


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="folder of runs, tables and documents")
    parser.add_argument("--captures", action="store_true", help="with the recordings; never with a .nsys-rep")
    parser.add_argument("--output", type=Path, required=True, help="the archive")
    options = parser.parse_args(arguments)
    needed = ["grid.json", "tables/provenance.json", *(f"tables/{name}.parquet" for name in TABLES), "report.html"]
    if lacking := next((name for name in needed if not (options.results / name).exists()), None):
        raise OutsideError(f"{options.results / lacking} is not there; before packing: snakemake --cores 1 all")
    runs = pd.read_parquet(options.results / "tables" / "runs.parquet")
    manifest = write_archive(
        options.results, options.output, captures=options.captures, version=version(),
        grid=json.loads((options.results / "grid.json").read_text())["grid"],
        runs=json.loads(runs[list(RUN_COLUMNS)].fillna({"steps_warmed": 0}).to_json(orient="records")),
    )  # fmt: skip
    recordings = sum(is_capture(name) for name in manifest.files)
    size = options.output.stat().st_size
    print(
        f"{options.output}: {len(manifest.files)} files of {len(runs)} runs, {size / 1e6:.1f} MB,"
        f" {recordings or 'without'} recordings; to read it, give its path:"
        " snakemake --cores 1 --directory theirs all --config packed=PATH"
    )


if __name__ == "__main__":
    run_command(main)
