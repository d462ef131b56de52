"""Documents in LaTeX and Typst: they hold the numbers of those in Markdown, and compile, whatever names they have."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.workflow.small_tables import make_run
from tests.workflow.test_answers import answer
from workflow.charts import save, text_chart

printing = pytest.importorskip("workflow.scripts.print", reason="pypandoc_binary is not installed")
HOSTILE = "<script>alert(1)</script>|$\\input{x}$ #let x = `y` *b* _c_ [d](e) @f ~ ^ % & é"


@pytest.fixture(scope="module")
def printed(tmp_path_factory) -> Path:
    """All answers of a grid with hostile names of models and kernels, in Markdown, LaTeX and Typst."""
    results = tmp_path_factory.mktemp("results")
    runs = [make_run(mode, mode=mode, model=f"tiny {HOSTILE}") for mode in ("forward", "train_step")]
    for row in runs[1]["kernels"] + runs[0]["kernels"]:
        row |= {"kernel": f"{row['kernel']} {HOSTILE}", "range": f"{row['range']} > {HOSTILE}"}
    answer(results, *runs)
    for name in ("scaling", "top_kernels", "class_shares", "phase_times", "attention"):
        save(text_chart(name), results / f"figures/{name}.png")
    for suffix in ("tex", "typ"):
        printing.main(str(results / "answers/answers.md"), str(results / f"answers/answers.{suffix}"))
    return results / "answers"


def test_the_printed_answers_hold_the_numbers_of_those_in_markdown(printed):
    numbers = set(re.findall(r"\d+\.\d+", (printed / "answers.md").read_text()))
    assert len(numbers) > 30
    for suffix in ("tex", "typ"):
        assert numbers <= set(re.findall(r"\d+\.\d+", (printed / f"answers.{suffix}").read_text()))


def test_the_answers_compile_in_latex(printed):
    if not shutil.which("lualatex") or subprocess.run(["kpsewhich", "luaotfload-main.lua"], check=False).returncode:
        pytest.skip("no LuaLaTeX: apt-get install texlive-luatex texlive-latex-recommended")
    command = ["lualatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "answers.tex"]
    done = subprocess.run(command, cwd=printed, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    printing.main(str(printed / "answers.md"), str(printed / "printed.pdf"))
    for name in ("answers", "printed"):
        assert (printed / f"{name}.pdf").read_bytes().startswith(b"%PDF")
