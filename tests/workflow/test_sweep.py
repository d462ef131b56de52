"""A grid of attention alone, measured to its end, and what is planned when it grows."""

import json

import pandas as pd
import pytest
import yaml

from tests.workflow.conftest import ROOT, TINY_GRID, copy_sources
from workflow.scripts import pack, read_packed

ROW, IN_BF16 = "attention_d8_bs2", "attention_d8_bf16_bs2"

MADE = ["sweep_plan", "sweep_tables", "attention_sweep", "all"]


def write_grid(folder, **changes) -> None:
    product = {"program": "attention", "head_dims": [8], "context_lengths": [8, 16], "batch_sizes": [2]} | changes
    passes = {"warmup_passes": 0, "measured_passes": 2}
    (folder / "config.yaml").write_text(
        yaml.safe_dump(yaml.safe_load(TINY_GRID) | {"grids": {"test": [product]}, "sweep": passes})
    )


@pytest.fixture(scope="module")
def swept(tmp_path_factory, snakemake):
    """A project whose sweep of one row has been run to its end, and that run."""
    folder = copy_sources(ROOT, tmp_path_factory.mktemp("sweep") / "project")
    write_grid(folder)
    return folder, snakemake(folder, "--cores", "1")


def test_a_grid_of_attention_gives_a_table_a_document_and_a_figure_and_nothing_of_models(swept):
    folder, run = swept
    assert run.status == 0, run.output
    assert sorted(run.jobs) == sorted([f"sweep {ROW}", *MADE])
    table = pd.read_parquet(folder / "results/tables/attention_sweep.parquet")
    assert table[["context_length", "status", "passes"]].to_numpy().tolist() == [
        [8, "complete", 2],
        [16, "complete", 2],
    ]
    assert (folder / "results/answers/attention_sweep.md").read_text().startswith("# Attention alone")
    assert (folder / "results/figures/attention_sweep.svg").stat().st_size > 0
    assert json.loads((folder / f"results/sweep/{ROW}/sweep.json").read_text())["status"] == "complete"


def test_what_a_sweep_made_is_held_against_its_rows_and_each_file_that_differs_is_named(swept, snakemake):
    folder, _ = swept
    results = folder / "results"
    times = pd.read_parquet(results / "tables/attention_sweep.parquet")
    times.assign(forward_ms=2 * times["forward_ms"]).to_parquet(results / "tables/attention_sweep.parquet", index=False)
    run = snakemake(folder, "--cores", "1", "verify")
    times.to_parquet(results / "tables/attention_sweep.parquet", index=False)
    assert run.status != 0
    assert "attention_sweep.parquet: column(s) forward_ms differ; row 0 of forward_ms is" in run.output
    assert "1 of 11 files are not what the results give" in run.output


def test_a_sweep_is_packed_and_its_documents_are_planned_anew_from_the_archive_without_measuring(
    swept, snakemake, tmp_path
):
    folder, _ = swept
    pack.main(["--results", str(folder / "results"), "--output", str(tmp_path / "sweep.zip")])
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    here = ("--directory", str(theirs), "--config", f"packed={tmp_path / 'sweep.zip'}", "--cores", "1")
    planned = snakemake(ROOT, "--dry-run", *here)
    assert planned.status == 0, planned.output
    assert sorted(planned.jobs) == ["all", "attention_sweep", "read_packed"]
    read_packed.main(
        ["--archive", str(tmp_path / "sweep.zip"), "--results", str(theirs / "results"), "--marker", "packed.json"]
    )
    assert sorted(path.name for path in (theirs / "results").rglob("*.*") if path.is_file()) == [
        "attention_sweep.csv", "attention_sweep.parquet", "grid.json", "packed.json", "provenance.json", "sweep.json",
        "sweep_rows.csv", "sweep_rows.parquet",
    ]  # fmt: skip
    for name in ("attention_sweep.parquet", "sweep_rows.parquet", "provenance.json"):
        assert (theirs / "results/tables" / name).read_bytes() == (folder / "results/tables" / name).read_bytes()


def test_a_precision_added_plans_the_new_row_alone_and_nothing_is_planned_without_a_change(swept, snakemake):
    folder, _ = swept
    assert snakemake(folder, "--dry-run").jobs == []
    write_grid(folder, precisions=["fp32", "bf16"])
    assert sorted(snakemake(folder, "--dry-run").jobs) == sorted([f"sweep {IN_BF16}", *MADE])


def test_a_row_that_no_machine_can_measure_ends_the_planning_with_one_line(swept, snakemake):
    folder, _ = swept
    write_grid(folder, compiles=["on"], attentions=["flash"])
    planned = snakemake(folder, "--dry-run")
    assert planned.status != 0 and planned.jobs == []
    assert "config.yaml: grids.test: a row of attention cannot be measured: compile on with attention" in planned.output
    assert "Traceback" not in planned.output
