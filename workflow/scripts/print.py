"""A document in Markdown -> LaTeX, Typst or PDF, by pandoc."""

import os
import re
from pathlib import Path

import pypandoc


def main(document: str, output: str) -> None:
    """Writes a document as .tex, .typ or .pdf. Figures are PNG, since LaTeX reads SVG only by another program."""
    text = re.sub(r"(\]\(\.\./figures/\w+)\.svg\)", r"\1.png)", Path(document).read_text(encoding="utf-8"))
    partial = Path(output).with_name(f".{os.getpid()}.{Path(output).name}")
    options = ["--standalone", "--pdf-engine=lualatex", "--variable=geometry:landscape,margin=15mm"]
    options += [f"--resource-path={Path(document).parent}"]
    kind = {".tex": "latex", ".typ": "typst", ".pdf": "pdf"}[Path(output).suffix]
    try:
        pypandoc.convert_text(text, kind, format="gfm", outputfile=str(partial), extra_args=options)
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)


if "snakemake" in globals():
    main(snakemake.input.document, snakemake.output[0])
