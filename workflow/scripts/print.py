"""A document in Markdown -> LaTeX, Typst or PDF, by pandoc."""

import re
from pathlib import Path

import pypandoc


def main(document: str, output: str) -> None:
    """Writes a document as .tex, .typ or .pdf. Figures are PNG, since LaTeX reads SVG only by another program."""
    text = re.sub(r"(\]\(\.\./figures/\w+)\.svg\)", r"\1.png)", Path(document).read_text(encoding="utf-8"))
    options = ["--standalone", "--pdf-engine=lualatex", "--variable=geometry:landscape,margin=15mm"]
    options += [f"--resource-path={Path(document).parent}"]
    kind = {".tex": "latex", ".typ": "typst", ".pdf": "pdf"}[Path(output).suffix]
    pypandoc.convert_text(text, kind, format="gfm", outputfile=output, extra_args=options)


if "snakemake" in globals():
    main(snakemake.input.document, snakemake.output[0])
