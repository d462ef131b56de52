"""Packs results for other people: `python -m workflow.scripts pack --results results --output results.zip`."""

import json
from pathlib import Path

import pandas as pd

import kernel_tables
from profile_grid import errors, quantities
from profile_grid.sharing.archive import RUN_COLUMNS, is_capture, write_archive
from profile_grid.study.catalogue import table_names_of


def main(*, results: Path, output: Path, captures: bool = False) -> None:
    require(results, ["grid.json", "tables/runs.parquet"])
    plan = json.loads((results / "grid.json").read_text())
    runs = facts_of_runs(results)
    tables = [f"tables/{name}.parquet" for name in table_names_of(runs)]
    require(results, ["tables/provenance.json", *tables, "report.html"])
    manifest = write_archive(
        results, output, captures=captures, version=kernel_tables.__version__, grid=plan["grid"], runs=runs,
    )  # fmt: skip
    recordings = sum(is_capture(name) for name in manifest.files)
    size = output.stat().st_size
    print(
        f"{output}: {len(manifest.files)} files of {quantities.counted(len(runs), 'run')}, {size / 1e6:.1f} MB,"
        f" {recordings or 'without'} recordings; to read it, give its path:"
        " snakemake --cores 1 --directory theirs all --config packed=PATH"
    )


def require(results: Path, names: list[str]) -> None:
    """Raises OutsideError for the first of these files that is missing."""
    if lacking := next((name for name in names if not (results / name).exists()), None):
        raise errors.OutsideError(f"{results / lacking} is not there; before packing: snakemake --cores 1 all")


def facts_of_runs(results: Path) -> list[dict]:
    """The facts of each run in an archive, which decide the questions that it can answer."""
    runs = pd.read_parquet(results / "tables" / "runs.parquet")
    return json.loads(runs[list(RUN_COLUMNS)].fillna({"steps_warmed": 0}).to_json(orient="records"))
