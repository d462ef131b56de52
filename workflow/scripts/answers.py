"""From tables and templates to the documents: facts from pandas, prose from workflow/templates.

Every template becomes a document of its name; answers.md has all of them, and once at its end what was not measured
and with what the rest was.
"""

from pathlib import Path

import pandas as pd

from kernel_tables.kernel_classes.categories import family
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
    sections = ["#" + document for document in documents]
    if missing := text.list_missing(runs):
        sections.append("## Not measured\n\n" + "\n".join(f"- {line}" for line in missing))
    sections.append("## Provenance\n\n" + "\n".join(f"- {line}" for line in describe_provenance(runs)))
    return "\n\n".join(["# Answers", *sections])


def describe_provenance(runs: pd.DataFrame) -> list[str]:
    """How many runs, of which models, with what and when: a line each."""
    started = runs[[name for name in runs if name.endswith("_started_utc")]].stack().dropna()
    lines = [f"{len(runs)} runs; {describe_models(runs)}", text.describe_machine(runs)]
    if len(started):
        lines.append(f"measured {started.min()} to {started.max()}")
    return lines


def describe_models(runs: pd.DataFrame) -> str:
    """The models with their sizes, since a name says less: "2.7B (3.41 B parameters: 32 layers, d_model 2560)"."""
    texts = []
    for model, rows in runs.groupby("model", sort=False):
        row = rows.iloc[0]
        sizes = {"num_layers": "{:.0f} layers", "d_model": "d_model {:.0f}", "d_ff": "d_ff {:.0f}"}
        known = [form.format(row[name]) for name, form in sizes.items() if not pd.isna(row.get(name))]
        parameters = rows["parameters"].astype("float64").max()
        unit, size = ("B", 1e9) if parameters >= 1e9 else ("M", 1e6)
        count = [] if pd.isna(parameters) else [f"{text.write_number(parameters / size)} {unit} parameters"]
        described = ": ".join(part for part in (*count, ", ".join(known)) if part)
        texts.append(text.escape(model) + (f" ({described})" if described else ""))
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
    rest = {", ".join(small): lambda frame: frame[small].sum(axis=1)} if small else {}
    frames = [frame[names].assign(**{label: make(frame) for label, make in rest.items()}) for frame in frames]
    return [frame.rename(columns=text.escape) for frame in frames]


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.input.templates), str(Path(snakemake.output[0]).parent))
