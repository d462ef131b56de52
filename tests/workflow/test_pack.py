"""Results that are packed by one and read by another, who has neither the captures nor the time to measure."""

import zipfile

import pytest

from profile_grid.errors import OutsideError
from profile_grid.study.catalogue import merged_names
from profile_grid.study.workloads import MODEL_STEPS
from tests.workflow.conftest import CANARY, ROOT
from tests.workflow.test_leaks import contents, leaks
from workflow.scripts import pack


@pytest.fixture(scope="module")
def archive(finished_project, tmp_path_factory):
    path = tmp_path_factory.mktemp("packed") / "results.zip"
    pack.main(results=finished_project / "results", output=path)
    return path


def test_somebody_else_makes_the_documents_anew_from_an_archive_without_measuring(
    archive, finished_project, tmp_path, snakemake
):
    here = ("--directory", str(tmp_path), "--config", f"packed={archive}", "--cores", "2")
    planned = snakemake(ROOT, "--dry-run", *here)
    assert planned.status == 0, planned.output
    kinds = {job.split()[0] for job in planned.jobs}
    assert kinds == {
        "read_packed",
        "summaries",
        "answers",
        "figures",
        "page",
        "dictionary",
        "table_documents",
        "contents",
        "all",
    }
    made = snakemake(ROOT, *here, "results/grid.json")
    assert made.status == 0, made.output
    for name in ["provenance.json", *(f"{table}.parquet" for table in merged_names({MODEL_STEPS}))]:
        theirs = tmp_path / "results/tables" / name
        assert theirs.read_bytes() == (finished_project / "results/tables" / name).read_bytes()
    assert (tmp_path / "results/runs/alpha_ctx8_forward/timing.json").exists()
    assert not list(tmp_path.rglob("capture.sqlite"))


def test_an_archive_never_takes_the_place_of_ones_own_results(archive, finished_project, snakemake):
    run = snakemake(finished_project, "--dry-run", "--cores", "1", "--config", f"packed={archive}")
    assert run.status != 0
    assert "results/ holds other results; to read" in run.output


def test_an_archive_that_is_none_is_named_before_anything_is_planned(tmp_path, snakemake):
    (tmp_path / "other.zip").write_text("no archive")
    run = snakemake(ROOT, "--dry-run", "--directory", str(tmp_path), "--config", "packed=other.zip")
    assert run.status != 0
    assert "other.zip: it is damaged (File is not a zip file)" in run.output
    run = snakemake(ROOT, "--dry-run", "--directory", str(tmp_path), "--config", "packed=gone.zip")
    assert f"no archive {tmp_path}/gone.zip: name it by its full path" in run.output


def test_an_archive_holds_nothing_that_tells_of_the_place_where_it_was_packed(archive, finished_project, tmp_path):
    assert CANARY in str(finished_project)
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path)
        assert all(info.date_time == (1980, 1, 1, 0, 0, 0) for info in packed.infolist())
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and leaks(contents(path))]


def test_results_that_are_not_there_are_not_packed(tmp_path):
    with pytest.raises(OutsideError, match=r"grid\.json is not there; before packing: snakemake --cores 1 all"):
        pack.main(results=tmp_path, output=tmp_path / "a.zip")
