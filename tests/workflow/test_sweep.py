"""A grid of attention alone, measured to its end, and what is planned when it grows."""

import json

import pandas as pd
import pytest
import yaml

from tests.workflow.conftest import ROOT, TINY_GRID, copy_sources

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
