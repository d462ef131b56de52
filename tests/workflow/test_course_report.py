"""The page about a report of the course: what it names exists, and its files are planned in a made-up clone."""

import re

import yaml

from profile_grid.study.catalogue import QUESTIONS, TABLE_NAMES
from tests.workflow.conftest import ROOT

PAGE = (ROOT / "docs" / "course-report.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
PROBLEMS = [row for row in ROWS if len(row) == 5 and row[0] != "problem"]


def named(cell: str) -> list[str]:
    return re.findall(r"`([\w-]+)`", cell)


def test_every_problem_names_grids_documents_tables_and_figures_that_exist():
    grids = yaml.safe_load((ROOT / "config.yaml").read_text())["grids"]
    documents = {question.name for question in QUESTIONS}
    figures = {figure for question in QUESTIONS for figure in question.figures}
    assert len(PROBLEMS) == 17
    for _, grid, document, tables, studies in PROBLEMS:
        assert {*named(grid)} <= {*grids}
        assert {*named(document)} <= documents
        assert {*named(tables)} <= {*TABLE_NAMES} | figures
        assert all((ROOT / "docs" / "example-h200" / study / "answers").is_dir() for study in named(studies))
    assert {*re.findall(r"grid=([\w-]+)", PAGE)} <= {*grids}


def test_the_files_of_the_page_plan_the_course_s_model_and_a_student_s_attention_in_all_formats(tmp_path, snakemake):
    snakefile = next(text for kind, text in BLOCKS if kind == "python")
    (tmp_path / "Snakefile").write_text(snakefile.replace("../kernel-tables", str(ROOT)))
    settings = {}
    for text in (text for kind, text in BLOCKS if kind == "yaml"):
        settings |= yaml.safe_load(text)
    assert settings["formats"] == ["markdown", "latex", "typst"] and settings["program"]["adapters"] == "tests.adapters"
    for folder in ("cs336_basics", "tests"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "cs336_basics" / "model.py").write_text("class BasicsTransformerLM: ...\n")
    (tmp_path / "tests" / "adapters.py").write_text("def get_flashattention_autograd_function_triton(): ...\n")
    (tmp_path / "report.yaml").write_text(yaml.safe_dump(settings | {"grid": "my-attention"}))
    run = snakemake(tmp_path, "--dry-run", "--cores", "1", "all")
    assert run.status == 0, run.output
    assert "operator attention_d64_bf16_bs8_own-triton-attention" in run.jobs
    assert "results/answers/attention_sweep.typ" in run.output and "results/answers/attention_sweep.tex" in run.output
    run = snakemake(tmp_path, "--dry-run", "--cores", "1", "all", "--config", "grid=cpu")
    assert run.status == 0 and "timing tiny_ctx32_forward" in run.jobs
