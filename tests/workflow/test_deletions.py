"""Every file that the grid makes is missed when it is deleted, and the job that makes it is planned."""

import pytest

INSIDE_A_FOLDER = "results/tables/markdown/"  # that one job makes; Snakemake keeps a time stamp of its own there


def test_every_file_that_the_grid_makes_is_asked_for_by_its_name(finished_project, snakemake):
    # a deleted file that stands between others is not missed otherwise
    planned = snakemake(finished_project, "--dry-run", "--forcerun", "complete")
    asked_for = {file for job in ("all", "complete") for file in planned.inputs[job]}
    made = {str(path.relative_to(finished_project)) for path in (finished_project / "results").rglob("*.*")}
    made = {path for path in made if (finished_project / path).is_file() and not path.startswith(INSIDE_A_FOLDER)}
    assert len(made) > 60
    assert made - asked_for == set()


@pytest.mark.parametrize(
    ("file", "job"),
    [
        ("results/tables/provenance.json", "merge"),
        ("results/grid.json", "plan"),
        ("results/page/timeline.csv", "timeline"),
        ("results/tables/markdown/runs.md", "table_documents"),
        ("results/tables/markdown/contents.txt", "table_documents"),
    ],
)
def test_the_job_of_a_deleted_file_is_planned(project, snakemake, file, job):
    (project / file).unlink()
    assert job in snakemake(project, "--dry-run").jobs
