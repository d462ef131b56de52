"""Every file that the grid makes is missed when it is deleted, and the job that makes it is planned."""

from itertools import zip_longest
from pathlib import Path

import pytest

from profile_grid.freshness.records import LOCK_FILE, RECORDS_FILE
from profile_grid.study.stages import COUNTERS, STAGES
from profile_grid.study.workloads import MODEL_STEPS

RECORDS = (RECORDS_FILE, LOCK_FILE)  # what made the files next to them
RUN, OTHER = "alpha_ctx8_forward", "beta_ctx8_forward"
OF_EVERY_RUN = [stage for stage in STAGES if stage.of_every_run and stage.workload is MODEL_STEPS]
OF_THE_RUN = [*OF_EVERY_RUN, COUNTERS]  # it is the one that the page shows
FILES_OF_A_RUN = {name: stage.name for stage in OF_THE_RUN for name in (stage.result_file, *stage.files)} | {
    name: f"tables_of_{stage.name}"
    for stage in OF_THE_RUN
    if (of_run := stage.tables_of_a_run)
    for name in (of_run.status_file, *of_run.files)
}


def test_every_file_but_those_of_a_run_is_asked_for_by_its_name(finished_project, snakemake):
    # a deleted file that stands between others is not missed otherwise
    planned = snakemake(finished_project, "--dry-run", "--forcerun", "complete")
    asked_for = {file for job in ("all", "complete") for file in planned.inputs[job]}
    made = {str(path.relative_to(finished_project)) for path in (finished_project / "results").rglob("*.*")}
    made = {path for path in made if (finished_project / path).is_file() and not path.startswith("results/runs/")}
    made = {path for path in made if not path.endswith(RECORDS)}
    assert len(made) > 40
    assert made - asked_for == set()


def test_the_files_of_a_run_are_those_that_its_jobs_declare(finished_project):
    folder = finished_project / "results/runs" / RUN
    made = {str(path.relative_to(folder)) for path in folder.rglob("*.*") if path.is_file()}
    assert {path for path in made if not path.endswith(RECORDS)} == set(FILES_OF_A_RUN)


def in_pairs() -> list[dict[str, str]]:
    """Two files of different runs, by their paths, with their jobs: one plan tells of both, since no job of a run hangs
    on one of the other. Counters are of one run alone."""
    counted = {name: job for name, job in FILES_OF_A_RUN.items() if COUNTERS.name in job}
    others = [(name, job) for name, job in FILES_OF_A_RUN.items() if name not in counted]
    half = len(FILES_OF_A_RUN) // 2
    of_run, of_other = [*counted.items(), *others[half:]], others[:half]
    sides = [(f"results/runs/{RUN}", RUN, of_run), (f"results/runs/{OTHER}", OTHER, of_other)]
    named = [[(f"{folder}/{name}", f"{job} {run}") for name, job in files] for folder, run, files in sides]
    return [dict(filter(None, pair)) for pair in zip_longest(*named)]


def test_the_pairs_hold_every_file_of_a_run_once():
    assert sorted(Path(path).relative_to("results/runs").parts[1:] for pair in in_pairs() for path in pair) == sorted(
        Path(name).parts for name in FILES_OF_A_RUN
    )


@pytest.mark.parametrize("pair", in_pairs(), ids=" and ".join)
def test_the_job_of_a_deleted_file_of_a_run_is_planned(project, snakemake, pair):
    for path in pair:
        (project / path).unlink()
    assert set(pair.values()) <= set(snakemake(project, "--dry-run").jobs)


@pytest.mark.parametrize(
    ("file", "job"),
    [
        ("results/tables/provenance.json", "merge"),
        ("results/grid.json", "plan"),
        ("results/page/timeline.csv", "timeline"),
    ],
)
def test_the_job_of_a_deleted_file_is_planned(project, snakemake, file, job):
    (project / file).unlink()
    assert job in snakemake(project, "--dry-run").jobs
