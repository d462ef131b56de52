"""What an earlier grid left next to the documents of this one is removed, and only that."""

from pathlib import Path

import pytest

from profile_grid.freshness.digests import sha256_of_file
from profile_grid.freshness.records import Recipe, read_records, write_folder_records, write_records
from tests.workflow.test_invalidation import config
from workflow.scripts.contents import leftover_reason, remove_leftovers

RECIPE = Recipe("code", "settings", "packages", "inputs")
OLD, NEW, OWN, EDITED = (f"results/answers/{name}.md" for name in ("old", "new", "own", "edited"))
LATEX = ("results/tables/latex/runs.tex", "results/tables/latex/kernels/one.tex")
OF_A_RUN = "results/runs/one/kernels.csv"
KEPT = {NEW}


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Results of two grids, a file of somebody's own and one that was edited."""
    monkeypatch.chdir(tmp_path)
    for path in (OLD, NEW, OWN, EDITED, *LATEX, OF_A_RUN):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(path)
    write_records({path: sha256_of_file(path) for path in (OLD, NEW, EDITED, OF_A_RUN)}, RECIPE)
    write_folder_records("results/tables/latex", {path: sha256_of_file(path) for path in LATEX}, RECIPE)
    Path("results/tables/latex/.snakemake_timestamp").touch()
    Path(EDITED).write_text("edited")


def test_recorded_files_that_are_no_longer_made_are_removed_unless_they_were_edited(results):
    assert leftover_reason(KEPT).startswith("a file of an earlier grid is there: results/answers/")
    done = sorted(remove_leftovers(KEPT))
    assert [line.split()[:2] for line in done] == [
        ["left", f"{EDITED}:"], *(["removed", f"{path}:"] for path in (OLD, *sorted(LATEX)))
    ]  # fmt: skip
    assert all(Path(path).exists() for path in (NEW, OWN, EDITED, OF_A_RUN))
    assert not Path(OLD).exists() and not Path("results/tables/latex").exists()
    assert set(read_records("results/answers")) == {"new.md"}
    assert leftover_reason(KEPT) is None


def test_a_folder_that_is_still_made_keeps_its_files(results):
    assert leftover_reason({*KEPT, OLD, EDITED, "results/tables/latex"}) is None


def test_documents_of_a_study_that_is_no_longer_asked_for_are_planned_to_be_removed_and_are(project, snakemake):
    """The tiny grid counts kernels of one run; without that, question (l) is not asked."""
    document = project / "results/answers/l_counters.md"
    assert document.exists()
    config("kernel_classes: []", 'kernel_classes: []\ncounters: {runs: ""}')(project)
    assert "contents" in snakemake(project, "--dry-run").jobs
    assert snakemake(project, "--cores", "1", "results/contents.txt").jobs == ["contents"]
    assert not document.exists() and not (project / "results/figures/measured_roofline.svg").exists()
    assert (project / "results/answers/a_forward_time.md").exists()
    assert "l_counters" not in (project / "results/contents.txt").read_text()
