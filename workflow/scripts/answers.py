"""From tables and templates to the documents: facts from pandas, prose from workflow/templates.

Every template becomes a document of its name; answers.md has all of them, and once at its end what was not measured
and with what the rest was.
"""

from pathlib import Path

import pandas as pd

from kernel_tables.classes import family
from kernel_tables.output import escaped
from workflow import text
from workflow.tables import read_tables

SMALL_SHARE = 0.02  # classes below it everywhere share the column "other"


def main(tables: list[str], templates: list[str], folder: str) -> None:
    """Renders templates (NAME.md.j2) into folder/NAME.md; removes what other grids or formats left there."""
    frames, documents = read_tables(tables), {}
    environment = text.environment(frames)
    environment.globals["share_by_class"] = share_by_class
    for name in (Path(template).name for template in templates):
        documents[name.removesuffix(".md.j2")] = environment.get_template(name).render().strip()
    parts = {"documents": list(documents.values()), "missing": text.list_missing(frames["runs"])}
    documents["answers"] = environment.get_template("answers.md.j2").render(parts).strip()
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path in Path(folder).iterdir():
        if path.suffix in (".tex", ".typ", ".pdf") or (path.suffix == ".md" and path.stem not in documents):
            path.unlink()  # of an earlier grid, or printed from an earlier document
    for name, document in documents.items():
        Path(folder, f"{name}.md").write_text(document + "\n", encoding="utf-8")


def share_by_class(*tables: pd.DataFrame) -> list[pd.DataFrame]:
    """Of each table of selected rows with `class` and `share`, a frame with a column per class, without refinements:
    gemm first, then the largest, and those below SMALL_SHARE in all tables as "other". Names are escaped."""
    frames = []
    for table in tables:
        names = table["class"].map(family).replace({"attention": "fused attention"})
        sums = table["share"].groupby([*map(table.index.get_level_values, table.index.names), names], sort=False).sum()
        frames.append(sums.unstack("class", fill_value=0.0).reindex(table.index.unique()))
    most = pd.concat([frame.max() for frame in frames], axis=1).max(axis=1)
    names = most[most >= SMALL_SHARE].drop("gemm", errors="ignore").sort_values(ascending=False).index
    shown = [frame.reindex(columns=["gemm", *names], fill_value=0.0) for frame in frames]
    return [frame.assign(other=(1 - frame.sum(axis=1)).clip(lower=0)).rename(columns=escaped) for frame in shown]


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.input.templates), str(Path(snakemake.output[0]).parent))
