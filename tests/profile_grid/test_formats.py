"""Documents compiled by a real TeX and a real Typst, and read back from the PDF."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kernel_tables.markdown import MarkdownTable, code, escaped, pipe_table
from profile_grid.documents.documents import documents
from profile_grid.documents.formats import document_in, fragment_in
from profile_grid.documents.summaries import Summaries, summary_tables
from profile_grid.documents.table_documents import table_documents
from tests.profile_grid.made_up import Kernel, Made, forward_kernels, grid, merged
from tests.profile_grid.test_answers import HOSTILE, PROVENANCE

pytest.importorskip("pypandoc", reason="pypandoc_binary is not installed: pip install pypandoc_binary")
needs_tex = pytest.mark.skipif(
    not (shutil.which("pdflatex") and shutil.which("pdftotext")),
    reason="no pdflatex or pdftotext: apt-get install texlive-latex-recommended lmodern poppler-utils",
)
LONG_NAME = "void at::native::elementwise_kernel<" + "at::detail::Array<char*, (int)3>, " * 12 + "int>(T1)"
COMMANDS = r"100% #1 {x} ^a~b \end{document} \today & $x_i$ #include(\"x\") @ref *b* _i_ `c` //"


def latex_text(latex: str, folder: Path) -> str:
    """The text of the compiled document without white space; compiled twice, since longtable measures on the way."""
    (folder / "document.tex").write_text(latex, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "document.tex"]
    for _ in range(2):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
        assert done.returncode == 0, done.stdout[-2000:]
    return pdf_text(folder / "document.pdf").replace("ˆ", "^").replace("‘", "`")  # glyphs of TeX's text fonts


def typst_text(source: str, folder: Path) -> str:
    typst = pytest.importorskip("typst", reason="the Typst compiler is not installed: pip install typst")
    (folder / "document.typ").write_text(source, encoding="utf-8")
    typst.compile(str(folder / "document.typ"), output=str(folder / "document.pdf"))
    return pdf_text(folder / "document.pdf")


def pdf_text(path: Path) -> str:
    if not shutil.which("pdftotext"):
        pytest.skip("no pdftotext: apt-get install poppler-utils")
    text = subprocess.run(["pdftotext", "-layout", str(path), "-"], capture_output=True, text=True, check=True).stdout
    return squeezed(text)


def squeezed(text: str) -> str:
    return re.sub(r"[\s\u200b]+", "", text)


@pytest.fixture(scope="module")
def answers() -> str:
    """All five answers of a grid in which every name is hostile in one way or another."""
    kernels = tuple(
        Kernel("forward", HOSTILE, name, "elementwise", 3, 5000.0 + i)
        for i, name in enumerate((HOSTILE, COMMANDS, LONG_NAME))
    )
    runs = [*grid(), Made(model=HOSTILE, kernels=forward_kernels(4000.0) + kernels)]
    tables = merged(runs)
    return documents(Summaries(tables), tables["runs"], PROVENANCE)["answers"]


@needs_tex
def test_the_answers_compile_in_latex_and_names_read_as_themselves(answers, tmp_path):
    text = latex_text(document_in("latex", answers), tmp_path)
    assert squeezed("Where the time of a Transformer goes") in text
    assert squeezed("10.70 ± 0.10") in text
    assert squeezed(HOSTILE) in text
    assert squeezed(LONG_NAME) in text
    assert not re.search(
        r"Overfull \\hbox \((?:[3-9]\d|\d{3,})", (tmp_path / "document.log").read_text(errors="replace")
    )


def test_the_answers_compile_in_typst_and_names_read_as_themselves(answers, tmp_path):
    text = typst_text(document_in("typst", answers), tmp_path)
    assert squeezed("Where the time of a Transformer goes") in text
    assert squeezed("10.70 ± 0.10") in text
    assert squeezed(HOSTILE) in text
    assert squeezed(LONG_NAME) in text


def test_latex_tables_are_of_booktabs(answers):
    latex = document_in("latex", answers)
    assert "\\toprule" in latex
    assert "\\usepackage{longtable,booktabs,array,calc}" in latex
    assert "\\hline" not in latex


def in_a_write_up(style: str, names: list[str]) -> str:
    """A document of one's own that includes the fragments, as the README says."""
    if style == "latex":
        inputs = "\n".join(f"\\input{{{name}.tex}}" for name in names)
        packages = "\\usepackage{longtable,booktabs,array,calc,lmodern}\\usepackage[T1]{fontenc}"
        return f"\\documentclass{{article}}{packages}\\begin{{document}}\n{inputs}\n\\end{{document}}\n"
    return "\n".join(f'#include "{name}.typ"' for name in names) + "\n"


@pytest.mark.parametrize("style", [pytest.param("latex", marks=needs_tex), "typst"])
def test_every_summary_table_compiles_as_a_fragment_of_a_write_up(style, tmp_path):
    names = []
    for name, table in summary_tables(merged([Made(model=HOSTILE, kernels=forward_kernels())])).items():
        for stem, markdown in table_documents(name, table):
            names.append(stem)
            suffix = {"latex": ".tex", "typst": ".typ"}[style]
            (tmp_path / f"{stem}{suffix}").write_text(fragment_in(style, markdown), encoding="utf-8")
    source = in_a_write_up(style, names)
    text = latex_text(source, tmp_path) if style == "latex" else typst_text(source, tmp_path)
    assert text.count(squeezed("reduction")) >= 3


@pytest.mark.parametrize("style", [pytest.param("latex", marks=needs_tex), "typst"])
@pytest.mark.parametrize("name", [HOSTILE, LONG_NAME, COMMANDS])
def test_a_name_reads_as_itself_in_text_table_and_list_of_every_format(style, name, tmp_path):
    table = pipe_table(MarkdownTable(("a", "b"), ((code(name, in_table=True), "-"), (escaped(name), "-"))))
    source = document_in(style, f"{escaped(name)}\n\n{table}\n\n- {code(name)}\n")
    text = latex_text(source, tmp_path) if style == "latex" else typst_text(source, tmp_path)
    assert text.replace("-", "").count(squeezed(name).replace("-", "")) == 4


@needs_tex
def test_a_character_that_latex_cannot_set_is_printed_as_its_code_point(tmp_path):
    assert "aU+6838bU+1F642c" in latex_text(document_in("latex", f"{code('a核b🙂c')}\n"), tmp_path)


def test_a_document_in_markdown_is_the_document():
    assert document_in("markdown", "# a\n") == fragment_in("markdown", "# a\n") == "# a\n"
