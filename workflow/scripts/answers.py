"""From tables and templates to the documents: facts from pandas, prose from workflow/templates.

Every template becomes a document of its name; answers.md has all of them, and once at its end what was not measured
and with what the rest was.
"""

from pathlib import Path

import pandas as pd

from kernel_tables.classes import family
from workflow import text
from workflow.tables import read_tables

SMALL_SHARE = 0.01  # classes below it everywhere share one column


def main(tables: list[str], templates: list[str], folder: str) -> None:
    """Reads tables (.parquet), renders templates (NAME.md.j2) into folder/NAME.md; removes other documents there."""
    frames = read_tables(tables)
    documents = {}
    for template in map(Path, templates):
        environment = text.environment(frames, template.parent)
        environment.globals["share_by_class"] = share_by_class
        documents[template.name.removesuffix(".md.j2")] = environment.get_template(template.name).render().strip()
    documents["answers"] = join_documents(list(documents.values()), frames["runs"])
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path in Path(folder).iterdir():
        if path.suffix in (".md", ".tex", ".typ", ".pdf") and path.stem not in documents:
            path.unlink()  # of an earlier grid
    for name, document in documents.items():
        Path(folder, f"{name}.md").write_text(document + "\n", encoding="utf-8")


def join_documents(documents: list[str], runs: pd.DataFrame) -> str:
    """All documents as sections of one, then what was not measured, and the provenance."""
    machine = text.describe_machine(runs)  # once, at the end
    sections = ["#" + document.replace(f"\n\n{machine}", "") for document in documents]
    if missing := text.list_missing(runs):
        sections.append("## Not measured\n\n" + "\n".join(f"- {line}" for line in missing))
    started = runs["started_utc"].dropna() if "started_utc" in runs else []
    when = f"\n- measured {started.min()} to {started.max()}" if len(started) else ""
    sections.append(f"## Provenance\n\n- {len(runs)} runs; {describe_models(runs)}\n- {machine}{when}")
    return "\n\n".join(["# Answers", *sections])


def describe_models(runs: pd.DataFrame) -> str:
    """The models with their sizes, since a name says less: "2.7B (3410 M parameters, num_layers 32)"."""
    texts = []
    for model, rows in runs.groupby("model", sort=False):
        row, parameters = rows.iloc[0], rows["parameters"].astype("float64").max() / 1e6
        known = [f"{text.write_number(parameters)} M parameters"] if parameters == parameters else []
        known += [f"{name} {row[name]:.0f}" for name in ("num_layers", "d_model", "d_ff") if not pd.isna(row.get(name))]
        texts.append(text.escape(model) + (f" ({', '.join(known)})" if known else ""))
    return "; ".join(texts)


def share_by_class(*tables: pd.DataFrame) -> list[pd.DataFrame]:
    """Of each table of selected rows with `class` and `share`, a frame with a column per class, without refinements;
    gemm first, then the largest. Classes below SMALL_SHARE in all tables share a column, which has their names. These
    are escaped."""
    frames = []
    for table in tables:
        named = table.assign(**{"class": table["class"].map(family).replace({"attention": "fused attention"})})
        sums = named.set_index("class", append=True)["share"]
        sums = sums.groupby(level=sums.index.names, sort=False).sum()
        frames.append(sums.unstack("class", fill_value=0.0).reindex(table.index.unique()))
    most = pd.concat([frame.max() for frame in frames], axis=1).max(axis=1)
    mean = pd.concat([frame.mean() for frame in frames], axis=1).max(axis=1)
    names = ["gemm", *mean.drop("gemm", errors="ignore").sort_values(ascending=False, kind="stable").index]
    small = sorted(name for name in names[1:] if 0 < most[name] < SMALL_SHARE)
    names = [name for name in names if name not in small and (name == "gemm" or most[name] > 0)]
    frames = [frame.reindex(columns=[*names, *small], fill_value=0.0) for frame in frames]
    if small:
        frames = [frame[names].assign(**{", ".join(small): frame[small].sum(axis=1)}) for frame in frames]
    return [frame.rename(columns=text.escape) for frame in frames]


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.input.templates), str(Path(snakemake.output[0]).parent))
