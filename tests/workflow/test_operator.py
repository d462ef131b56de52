"""A grid of attention alone, measured to its end, and what is planned when it grows."""

import json
import re

import pandas as pd
import pytest
import yaml

from tests.workflow.conftest import ROOT, TINY_GRID, copy_sources
from workflow.scripts import pack, read_packed

RUN, IN_BF16 = "attention_d8_bs2", "attention_d8_bf16_bs2"
OF_DOCUMENTS = [
    "summaries", "answers", "figures", "dictionary", "table_documents",
    "page",
]  # fmt: skip


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
    expected = [f"operator {RUN}", "machine", "plan", "merge", *OF_DOCUMENTS, "contents", "complete", "all"]
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


def test_what_was_made_is_compared_with_the_runs_and_each_file_that_differs_is_named(measured, snakemake):
    folder, _ = measured
    results = folder / "results"
    times = pd.read_parquet(results / "tables/attention_sweep.parquet")
    times.assign(forward_ms=2 * times["forward_ms"]).to_parquet(results / "tables/attention_sweep.parquet", index=False)
    run = snakemake(folder, "--cores", "1", "verify")
    times.to_parquet(results / "tables/attention_sweep.parquet", index=False)
    assert run.status != 0
    assert "attention_sweep.parquet: column(s) forward_ms differ; row 0 of forward_ms is" in run.output
    assert re.search(r"\b1 of \d\d files are not what the results give", run.output)


def test_it_is_packed_and_its_documents_are_planned_from_the_archive_without_measuring(measured, snakemake, tmp_path):
    folder, _ = measured
    pack.main(results=folder / "results", output=tmp_path / "alone.zip")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    here = ("--directory", str(theirs), "--config", f"packed={tmp_path / 'alone.zip'}", "--cores", "1")
    planned = snakemake(ROOT, "--dry-run", *here)
    assert planned.status == 0, planned.output
    assert sorted(planned.jobs) == sorted(["all", *OF_DOCUMENTS, "contents", "read_packed"])
    read_packed.main(archive=tmp_path / "alone.zip", results=theirs / "results", marker="packed.json")
    names = ("cost", "operator_times", "runs")
    merged = [f"{name}.{suffix}" for name in names for suffix in ("csv", "parquet")]
    assert sorted(path.name for path in (theirs / "results").rglob("*.*") if path.is_file()) == sorted(
        ["grid.json", "packed.json", "provenance.json", "operator.json", *merged]
    )
    for name in (*merged, "provenance.json"):
        assert (theirs / "results/tables" / name).read_bytes() == (folder / "results/tables" / name).read_bytes()


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
