"""A grid of attention alone, measured to its end, and what is planned when it grows."""

import json

import pandas as pd
import pytest
import yaml

from tests.workflow.conftest import ROOT, TINY_GRID, copy_sources

RUN, IN_BF16 = "attention_d8_bs2", "attention_d8_bf16_bs2"
OF_DOCUMENTS = ["summaries", "answers", "figures", "dictionary", "page"]


def write_grid(folder, **changes) -> None:
    product = {"program": "attention", "head_dims": [8], "context_lengths": [8, 16], "batch_sizes": [2]} | changes
    settings = {
        "grids": {"test": [product]},
        "operator": {"warmup_passes": 0, "measured_passes": 2, "bench_s": 0.01},
        "timing": {"processes": 2},  # of other grids in this file: attention alone is not timed
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(yaml.safe_load(TINY_GRID) | settings))


@pytest.fixture(scope="module")
def measured(tmp_path_factory, snakemake):
    """A project whose grid of one run of attention alone has been run to its end, and that run."""
    folder = copy_sources(ROOT, tmp_path_factory.mktemp("operator") / "project")
    write_grid(folder)
    return folder, snakemake(folder, "--cores", "1")


def test_a_grid_of_attention_gives_a_table_a_document_and_a_figure_and_nothing_of_models(measured):
    folder, run = measured
    assert run.status == 0, run.output
    expected = [f"operator {RUN}", "machine", "plan", "merge", *OF_DOCUMENTS, "complete", "all"]
    assert sorted(run.jobs) == sorted(expected)
    table = pd.read_parquet(folder / "results/tables/attention_sweep.parquet")
    assert table[["context_length", "status", "passes"]].to_numpy().tolist() == [
        [8, "complete", 2],
        [16, "complete", 2],
    ]
    document = (folder / "results/answers/attention_sweep.md").read_text()
    assert document.startswith("# How fast is attention alone") and "no cell was measured" not in document
    assert (folder / "results/figures/attention_sweep.svg").stat().st_size > 0
    assert json.loads((folder / f"results/runs/{RUN}/operator.json").read_text())["status"] == "complete"
    assert json.loads((folder / "results/complete.json").read_text()) == {"runs": 1, "statuses": {"complete": 1}}
    assert sorted(path.name for path in (folder / "results/tables").glob("*.csv")) == [
        "attention_sweep.csv", "cost.csv", "operator_times.csv", "runs.csv",
    ]  # fmt: skip


def test_the_doctor_tries_a_pass_and_counts_what_is_there(measured):
    folder, _ = measured
    lines = (folder / "results/machine.txt").read_text().splitlines()
    assert [line.split()[1] for line in lines] == ["GPU", "torch", "smoke", "memory", "time"]
    assert "one pass of a small operator in" in lines[2] and "failed" not in lines[2]


def test_a_precision_added_plans_the_new_run_alone_and_nothing_is_planned_without_a_change(measured, snakemake):
    folder, _ = measured
    assert snakemake(folder, "--dry-run").jobs == []
    write_grid(folder, precisions=["fp32", "bf16"])
    expected = [f"operator {IN_BF16}", "plan", "merge", *OF_DOCUMENTS, "complete", "all"]
    assert sorted(snakemake(folder, "--dry-run").jobs) == sorted(expected)


def test_a_run_that_no_machine_can_measure_ends_the_planning_with_one_line(measured, snakemake):
    folder, _ = measured
    write_grid(folder, compiles=["on"], attentions=["flash"])
    planned = snakemake(folder, "--dry-run")
    assert planned.status != 0 and planned.jobs == []
    named = "config.yaml: grids.test: attention_d8_bs2_compile-on_flash-attention cannot be measured: compile on with"
    assert named in planned.output
    assert "Traceback" not in planned.output
