"""`snakemake verify`: tables made anew from the captures, compared with those on disk."""

import pandas as pd

RUN = "alpha_ctx8_forward"


def test_what_the_grid_made_is_what_its_captures_give(project, snakemake):
    run = snakemake(project, "verify")
    assert run.status == 0, run.output
    assert "the tables of 2 runs, and the merged ones, are what the captures give" in run.output


def test_a_csv_that_was_edited_is_found_with_the_line(project, snakemake):
    path = project / f"results/runs/{RUN}/phases.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1].replace(",step,", ",stop,"), *lines[2:]]) + "\n")
    run = snakemake(project, "verify")
    assert run.status != 0
    assert f"results/runs/{RUN}/phases.csv: 1 line(s) differ; line 2 is '0,stop," in run.output
    assert "1 file(s) are not what the captures give" in run.output


def test_a_parquet_whose_figures_were_changed_is_found_with_the_value(project, snakemake):
    path = project / f"results/runs/{RUN}/kernels.parquet"
    table = pd.read_parquet(path)
    true_ns = table.loc[3, "total_ns"]
    table.loc[3, "total_ns"] += 1
    table.to_parquet(path, index=False)
    run = snakemake(project, "verify")
    assert run.status != 0
    assert f"kernels.parquet: column(s) total_ns differ; row 3 of total_ns is {true_ns + 1}" in run.output
    assert f"its capture gives {true_ns}" in run.output


def test_merged_tables_and_missing_files_are_found_too(project, snakemake):
    path = project / "results/tables/timings.csv"
    path.write_text(path.read_text().replace("complete", "missing", 1))
    (project / f"results/runs/{RUN}/ranges.parquet").unlink()
    (project / f"results/runs/{RUN}/status.json").write_text("{}")
    run = snakemake(project, "verify")
    assert run.status != 0
    assert "results/tables/timings.csv: 1 line(s) differ; line 2" in run.output
    assert f"results/runs/{RUN}/ranges.parquet is missing" in run.output
    assert f"results/runs/{RUN}/status.json is not what its capture gives" in run.output
    assert "3 file(s) are not what the captures give" in run.output


def test_a_run_without_results_cannot_be_verified_and_is_named(project, snakemake):
    (project / f"results/runs/{RUN}/capture.json").unlink()
    run = snakemake(project, "verify")
    assert run.status != 0
    assert f"1 of 2 runs have no results to verify: {RUN}" in run.output
