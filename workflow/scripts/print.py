"""A document in Markdown -> LaTeX, Typst or PDF, by pandoc."""

import os
from pathlib import Path

import pypandoc


def main(document: str, output: str) -> None:
    """Writes a document of its own, in the format that the end of `output` says: .tex, .typ or .pdf."""
    partial = Path(output).with_name(f".{os.getpid()}.{Path(output).name}")
    options = ["--standalone", "--pdf-engine=lualatex", "--variable=geometry:landscape,margin=15mm"]
    formats = {".tex": "latex", ".typ": "typst", ".pdf": "pdf"}
    try:
        pypandoc.convert_file(
            document, formats[Path(output).suffix], format="gfm", outputfile=str(partial), extra_args=options
        )
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)


if "snakemake" in globals():
    main(snakemake.input[0], snakemake.output[0])
