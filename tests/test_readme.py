"""What the README says, done and compared."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from profile_grid.study.catalogue import QUESTIONS
from tests.workflow.conftest import copy_sources

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "docs" / "example-h200" / "tables"


def code_after(heading):
    """The first block of shell commands after a heading of the README."""
    return re.search(r"```bash\n(.*?)```", README.split(f"## {heading}\n")[1], re.DOTALL).group(1)


def example_rows():
    """The rows of the README's table, made from the example's own tables."""
    timings = pd.read_parquet(EXAMPLE / "timings.parquet").query("mode == 'train_step'")
    shares = pd.read_parquet(EXAMPLE / "class_shares.parquet")
    matmul = shares[(shares["phase"] == "all phases") & (shares["class"] == "gemm")]
    matmul = matmul.set_index(["model", "context_length", "mode"])["share"]
    for model, context in (("small", 512), ("medium", 512), ("large", 512), ("xl", 512), ("2.7B", 512), ("2.7B", 1024)):
        of_run = timings[(timings["model"] == model) & (timings["context_length"] == context)]
        ms = of_run.set_index("phase")["mean_ms"]
        times = " | ".join(f"{ms[phase]:.1f}" for phase in ("forward", "backward", "optimizer", "step"))
        inference, training = (matmul[model, context, mode] for mode in ("forward", "train_step"))
        yield f"| {model} · {context} | {times} | {inference:.1%} → {training:.1%} |".replace("%", " %")
    assert timings.query("model == '10B'")["status"].tolist() == ["out_of_memory"]
    yield "| 10B · 512 | out of memory | | | | |"


def test_the_table_of_questions_is_that_of_the_catalogue():
    told = re.findall(r"^\| (?:\((\w)\) )?(.*\?) \| (.*) \|$", README, re.MULTILINE)
    tables = {one.name: ", ".join(f"`{name}`" for name in one.tables) for one in QUESTIONS if one.has_document}
    assert told == [(one.letter, one.title, tables[one.name]) for one in QUESTIONS if one.has_document]


def test_every_test_that_the_table_of_faults_names_is_there():
    named = set(re.findall(r"`(?:tests/\w+/)?(test_\w+\.py)`", (ROOT / "docs" / "faults.md").read_text()))
    assert len(named) > 10
    assert named <= {path.name for path in (ROOT / "tests").rglob("test_*.py")}


def test_the_table_of_the_readme_is_that_of_the_example():
    rows = re.search(r"\|:--\|--:.*?\n(.*?)\n\n", README, re.DOTALL).group(1).splitlines()
    assert rows == list(example_rows())


def test_every_file_that_the_readme_links_to_is_there():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) >= 5
    assert [link for link in links if not link.startswith("http") and not (ROOT / link).exists()] == []


@pytest.mark.parametrize("heading", ["Two commands", "Your own model"])
def test_the_commands_of_the_readme_are_shell(heading):
    subprocess.run(["bash", "-n"], input=code_after(heading), text=True, check=True)


def test_ones_own_model_is_profiled_by_the_lines_of_the_readme(tmp_path):
    project = copy_sources(ROOT, tmp_path / "project")
    *files, command = code_after("Your own model").strip().splitlines()
    assert command.startswith("snakemake --cores 1 all --configfile my_grid.yaml")
    targets = "results/tables/timings.parquet results/answers/e_attention.md"
    script = "\n".join([*files, f"{command.replace(' all ', ' ')} -- {targets}"])
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run = subprocess.run(["bash", "-e"], input=script, text=True, cwd=project, env={**os.environ, "PATH": path},
                         capture_output=True, check=False)  # fmt: skip
    assert run.returncode == 0, run.stderr
    timings = pd.read_parquet(project / "results/tables/timings.parquet")
    assert set(timings["phase"]) == {"step", "forward", "loss", "backward", "optimizer"}
    assert (timings["mean_ms"] > 0).all()
    assert "computing softmax" in (project / "results/answers/e_attention.md").read_text(encoding="utf-8")
