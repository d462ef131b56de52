"""A made-up dimension, stage and question: each is a patch of few files, and everything else follows from it. Nothing
misses a question that is deleted."""

import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from tests.workflow.conftest import ROOT, copy_sources, draw_only
from tests.workflow.test_invalidation import appended, plan, replaced

PATCHES = ROOT / "tests" / "patches"
ONE, TWO = "tiny_ctx16_forward_t1", "tiny_ctx16_forward_t2"
GRID = ("--config", "grid=growing")


def files_of(patch: str) -> list[str]:
    """The files that a patch touches."""
    return re.findall(r"^\+\+\+ b/(.*)$", (PATCHES / f"{patch}.patch").read_text(), re.MULTILINE)


def apply(patch: str, folder: Path) -> None:
    subprocess.run(["git", "apply", str(PATCHES / f"{patch}.patch")], cwd=folder, check=True)


def delete_question(name: str, folder: Path) -> None:
    """Takes away the question's folder and its entry in the catalogue."""
    shutil.rmtree(folder / "profile_grid/questions" / name)
    catalogue = folder / "profile_grid/study/catalogue.py"
    without = re.sub(
        rf'^    Question\(\s*"{name}".*?\),\n(?=    Question|\))', "", catalogue.read_text(), flags=re.M | re.S
    )
    catalogue.write_text(without)


@pytest.fixture(scope="module")
def grown(tmp_path_factory, snakemake):
    """A project with all three, and without the question whose table others read too; its grid has been run."""
    folder = copy_sources(ROOT, tmp_path_factory.mktemp("grown") / "project")
    for patch in ("dimension", "stage", "question"):
        apply(patch, folder)
    delete_question("b_top_kernels", folder)
    draw_only(folder, "spread")
    run = snakemake(folder, "--cores", "2", *GRID)
    assert run.status == 0, run.output
    return folder


def table(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(folder / f"results/tables/{name}.csv")


def test_a_dimension_is_its_declaration_its_effect_and_its_values():
    assert files_of("dimension") == [
        "config.yaml", "cs336_model/program/variants/effects.py", "profile_grid/study/dimensions.py",
    ]  # fmt: skip


def test_a_stage_is_its_folder_and_its_place_in_the_list():
    outside = [path for path in files_of("stage") if not path.startswith("profile_grid/stages/first_step/")]
    assert outside == ["profile_grid/study/stages.py"]
    listed = (PATCHES / "stage.patch").read_text().partition("b/profile_grid/study/stages.py\n")[2]
    assert len(re.findall(r"^[+-](?![+-])", listed, re.MULTILINE)) == 3  # its import, and the list with it


def test_a_question_is_its_folder_and_one_line():
    outside = [path for path in files_of("question") if not path.startswith("profile_grid/questions/z_spread/")]
    assert outside == ["profile_grid/study/catalogue.py"]
    catalogue = (PATCHES / "question.patch").read_text().partition("b/profile_grid/study/catalogue.py\n")[2]
    assert len(re.findall(r"^[+-]", catalogue, re.MULTILINE)) == 3  # the file's two headers, and one line


def test_the_dimension_names_runs_and_has_a_column_in_every_table(grown):
    assert {path.name for path in (grown / "results/runs").iterdir()} == {ONE, TWO}
    for path in (grown / "results/tables").glob("*.csv"):
        assert pd.read_csv(path)["threads"].drop_duplicates().tolist() in ([1, 2], []), path
    assert "| `threads`" in (grown / "results/tables/README.md").read_text()


def test_the_dimension_stands_in_documents_and_in_a_menu_of_the_page(grown):
    text = (grown / "results/answers/a_forward_time.md").read_text()
    assert "| model | context | threads |" in text
    assert '<select name="threads">' in (grown / "results/report.html").read_text()


def test_the_stage_is_measured_counted_and_joined(grown):
    assert table(grown, "first_steps")["first_ms"].gt(0).tolist() == [True, True]
    assert table(grown, "runs")["first_step_status"].tolist() == ["complete", "complete"]
    assert set(table(grown, "cost")["stage"]) == {"timing", "capture", "counters", "first_step"}
    answers = (grown / "results/answers/answers.md").read_text()
    assert "timing, capture and first step: 2 complete; counters: 1 " in answers
    assert "1 unsupported" in answers and "1 not requested" in answers  # the first of them is the run on the page


def test_the_question_has_its_table_document_figure_and_place_on_the_page(grown):
    assert table(grown, "spread")["spread"].gt(0).all()
    answer = (grown / "results/answers/z_spread.md").read_text()
    assert "The steps of a run vary by" in answer
    assert "## (z) How much do the steps of a run vary?" in (grown / "results/answers/answers.md").read_text()
    assert (grown / "results/figures/spread.svg").read_text().startswith("<svg")
    assert "How much do the steps of a run vary?" in (grown / "results/report.html").read_text()


def test_nothing_misses_the_question_that_was_deleted(grown):
    assert not list((grown / "results").glob("*/b_top_kernels*"))
    assert (
        "The operator with the most time besides matrix multiplies is"
        in (grown / "results/answers/c_other_kernels.md").read_text()
    )
    assert "Which kernel takes the most time?" not in (grown / "results/report.html").read_text()


def test_a_value_more_plans_its_runs_alone(grown, snakemake):
    replaced("config.yaml", "threads: [1, 2]", "threads: [1, 2, 0]")(grown)
    jobs = plan(snakemake, grown, *GRID).jobs
    replaced("config.yaml", "threads: [1, 2, 0]", "threads: [1, 2]")(grown)
    measured = [job for job in jobs if job.startswith(("timing", "capture", "first_step"))]
    new = "tiny_ctx16_forward"  # the default has no part in the name
    assert sorted(measured) == [f"capture {new}", f"first_step {new}", f"timing {new}"]


def test_a_change_of_the_stage_runs_it_alone(grown, snakemake):
    appended("profile_grid/stages/first_step/measure.py", "\nEDITED = 1\n")(grown)
    jobs = plan(snakemake, grown, *GRID).jobs
    measured = [job for job in jobs if job.startswith(("timing", "capture", "first_step"))]
    assert sorted(measured) == [f"first_step {ONE}", f"first_step {TWO}"]
    assert "merge" in jobs
