"""The documents in LaTeX and Typst, made by the rule of the workflow."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profile_grid.documents.documents import documents
from profile_grid.documents.summaries import Summaries
from tests.profile_grid.made_up import Made, forward_kernels, grid, merged
from tests.profile_grid.test_answers import HOSTILE, PROVENANCE

pytest.importorskip("pypandoc", reason="pypandoc_binary is not installed: pip install pypandoc_binary")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> Path:
    """A folder with all answers of a grid in Markdown, LaTeX and Typst."""
    project = tmp_path_factory.mktemp("printed")
    folder = project / "results" / "answers"
    folder.mkdir(parents=True)
    tables = merged([*grid(), Made(model=HOSTILE, kernels=forward_kernels(4000.0))])
    (folder / "answers.md").write_text(documents(Summaries(tables), tables["runs"], PROVENANCE)["answers"])
    printed = [f"results/answers/answers.{suffix}" for suffix in ("tex", "typ")]
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--directory", project]
    command += ["--cores", "1", *printed, "--allowed-rules", "print"]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    return folder


@pytest.mark.parametrize("suffix", ["tex", "typ"])
def test_the_answers_hold_the_numbers_of_those_in_markdown(answers, suffix):
    numbers = set(re.findall(r"\d+\.\d+", (answers / "answers.md").read_text()))
    assert len(numbers) > 50
    assert numbers <= set(re.findall(r"\d+\.\d+", (answers / f"answers.{suffix}").read_text()))


def test_the_answers_compile_in_latex(answers):
    if not shutil.which("lualatex") or subprocess.run(["kpsewhich", "luaotfload-main.lua"], check=False).returncode:
        pytest.skip("no LuaLaTeX: apt-get install texlive-luatex texlive-latex-recommended")
    command = ["lualatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "answers.tex"]
    done = subprocess.run(command, cwd=answers, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (answers / "answers.pdf").stat().st_size > 0


def test_the_answers_compile_in_typst(answers):
    typst = pytest.importorskip("typst", reason="the Typst compiler is not installed: pip install typst")
    assert typst.compile(str(answers / "answers.typ")).startswith(b"%PDF")
