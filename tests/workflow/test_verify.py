"""`snakemake verify`: everything made anew from the results, compared with what is on disk."""

import json
import shutil

import pandas as pd
import pytest
import yaml

from profile_grid.errors import OutsideError
from profile_grid.freshness.records import LOCK_FILE, RECORDS_FILE
from tests.workflow.conftest import TINY_GRID, draw_only
from workflow.scripts import verify

RUN, OTHER = "alpha_ctx8_forward", "beta_ctx8_forward"


def test_files_that_are_what_the_results_give_are_counted(finished_project, capsys, monkeypatch):
    results, config = finished_project / "results", yaml.safe_load(TINY_GRID)
    monkeypatch.setattr(verify, "require_results", lambda plan, folder, sources: None)
    monkeypatch.setattr(verify, "make_again", lambda config, folder, cores: copied_tables(results, folder / "results"))
    verify.main(config=config, sources={}, results=results)
    made = [path for path in (results / "tables").rglob("*") if path.name not in (RECORDS_FILE, LOCK_FILE)]
    count = sum(path.is_file() for path in made)
    assert capsys.readouterr().out == f"{count} files, made from the results of 2 runs, are what these give\n"


def test_the_captures_of_all_ranks_stand_beside_the_results_of_which_all_is_made_anew(tmp_path):
    names = ["timing.json", "capture.json", "capture.sqlite", "capture_rank1.sqlite", "capture_rank2.sqlite"]
    folder = tmp_path / "results/runs/two_gpus"
    folder.mkdir(parents=True)
    for name in [*names, "status.json"]:
        (folder / name).touch()
    entry = {"run": "two_gpus", "specifications": {"timing": {}, "capture": {}}}
    verify.link_results([entry], tmp_path / "results", tmp_path / "anew")
    assert {path.name for path in (tmp_path / "anew/runs/two_gpus").iterdir()} == set(names)


def copied_tables(results, folder):
    shutil.copytree(results / "tables", folder / "tables")


def edited(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def doubled(path, kind):
    """Every figure of a kind in a Parquet file becomes its double."""
    table = pd.read_parquet(path)
    table.assign(**(2 * table.select_dtypes(kind))).to_parquet(path, index=False)


def test_every_file_that_is_not_what_the_results_give_is_named_with_its_first_difference(
    project, finished_project, snakemake
):
    draw_only(project, "phase_times", others=finished_project / "results/figures")
    results = project / "results"
    kernels = pd.read_parquet(results / f"runs/{RUN}/kernels.parquet")
    true_ns = kernels.loc[3, "total_ns"]
    kernels.loc[3, "total_ns"] += 1
    kernels.to_parquet(results / f"runs/{RUN}/kernels.parquet", index=False)
    edited(results / f"runs/{RUN}/phases.csv", ",step,", ",stop,")
    edited(results / f"runs/{RUN}/status.json", "complete", "incomplete")
    (results / f"runs/{RUN}/ranges.parquet").unlink()
    (results / f"runs/{RUN}/reports/api_summary.csv").write_text("Time (%)\n")
    edited(results / "tables/timings.csv", "complete", "missing")
    doubled(results / "tables/attention.parquet", "float")
    edited(results / "tables/provenance.json", '"runs": 2', '"runs": 3')
    edited(results / "answers/e_attention.md", "softmax", "softmin")
    edited(results / "figures/phase_times.svg", "<svg", "<svg ")
    doubled(results / "page/timeline.parquet", "int")
    (results / "page/trace.json.gz").write_bytes(b"no gzip")
    edited(results / "report.html", "<title>", "<title>A ")
    (results / "tables/markdown/runs.md").unlink()
    before = {path: path.stat().st_mtime_ns for path in results.rglob("*")}
    run = snakemake(project, "--cores", "2", "verify")
    assert run.status != 0
    assert {path: path.stat().st_mtime_ns for path in results.rglob("*")} == before
    for said in (
        f"kernels.parquet: column(s) total_ns differ; row 3 of total_ns is {true_ns + 1} and should be {true_ns}",
        f"results/runs/{RUN}/phases.csv: 1 line(s) differ; line 2 is '0,stop,",
        f'results/runs/{RUN}/status.json: 1 line(s) differ; line 2 is \' "status": "incomplete",\' and should be',
        f"results/runs/{RUN}/ranges.parquet is missing",
        f"results/runs/{RUN}/reports/api_summary.csv: ",
        "results/tables/timings.csv: 1 line(s) differ; line 2",
        "results/tables/attention.parquet: column(s) ",
        "results/tables/provenance.json: 1 line(s) differ",
        "results/answers/e_attention.md: 1 line(s) differ",
        "results/figures/phase_times.svg: ",
        "results/page/timeline.parquet: column(s) ",
        "results/page/trace.json.gz: ",
        "results/report.html: 1 line(s) differ",
        "results/tables/markdown/runs.md is missing",
    ):
        assert said in run.output
    assert "14 of " in run.output  # all others are what was made anew
    assert "make them again: snakemake --cores 1 all --forcerun results/" in run.output


def test_a_run_without_results_cannot_be_verified_and_is_named(project, snakemake):
    (project / f"results/runs/{RUN}/capture.json").unlink()
    run = snakemake(project, "verify")
    assert run.status != 0
    assert f"1 of 2 runs have no results to verify: {RUN}" in run.output


def test_a_folder_that_holds_another_grid_says_which_and_not_to_measure_this_one(project, snakemake):
    config = yaml.safe_load((project / "config.yaml").read_text())
    product = {"models": ["alpha"], "context_lengths": [16], "modes": ["forward"]}
    config |= {"grid": "other", "grids": {"other": [product]}}
    (project / "config.yaml").write_text(yaml.safe_dump(config))
    run = snakemake(project, "verify")
    assert run.status != 0
    told = "results/ holds the grid test (2 runs), and of the grid that these settings name 1 of 1 runs are not there"
    assert told in run.output
    assert "to measure them" not in run.output


@pytest.mark.parametrize(("held", "count"), [({"runs": [{"run": "eager"}]}, "1 run"), ({"rows": []}, "0 runs")])
def test_a_folder_that_holds_another_plan_says_so_be_it_of_a_version_that_had_grids_without_runs(tmp_path, held, count):
    (tmp_path / "grid.json").write_text(json.dumps({"grid": "attention-sweep"} | held))
    with pytest.raises(OutsideError, match=rf"holds the grid attention-sweep \({count}\), and of the grid that these"):
        verify.require_results([{"run": RUN, "specifications": {"timing": {}}}], tmp_path, source_digests={})


@pytest.mark.parametrize("file", ["capture.sqlite", "capture.json", "timing.json"])
def test_a_result_of_another_run_is_named(project, snakemake, file):
    folder = project / "results/runs"
    shutil.copy2(folder / OTHER / file, folder / RUN / file)
    run = snakemake(project, "verify")
    assert run.status != 0
    assert f"results/runs/{RUN}/{file.replace('.sqlite', '.json')} is stale: " in run.output
