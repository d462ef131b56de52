"""Makes the example again from its tables: `python -m docs.render_example`.

Each file that exists below docs/example-h200 is made again: tables of answers, documents and figures of every study,
comparisons, and the dictionary of columns. A table without rows has no file. Merged tables lose the columns that are no
longer declared.
"""

import json
from collections import ChainMap
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from profile_grid.comparing.outputs import write_comparison
from profile_grid.comparing.results import Results
from profile_grid.documents.dictionary import dictionary
from profile_grid.documents.documents import documents
from profile_grid.documents.summaries import Summaries
from profile_grid.figures import panels, paper
from profile_grid.files import write_text
from profile_grid.study.catalogue import SUMMARY_NAMES
from profile_grid.tables.on_disk import TablesOnDisk, declared_tables, empty_table

H200 = Path(__file__).with_name("example-h200")
STUDIES = [H200, *sorted(path.parent for path in H200.glob("*/answers"))]
COMPARISONS = sorted(path.parent for path in H200.glob("comparison/*/comparison.md"))


def write_small(path: Path, table: pd.DataFrame) -> None:
    """Writes a table in few bytes, or removes its file if it has no rows."""
    if table.empty:
        path.unlink(missing_ok=True)
        return
    arrow_table = pa.Table.from_pandas(table, preserve_index=False)
    columns = [(field.name, field.type) for field in arrow_table.schema]
    encodings = {name: "DELTA_BINARY_PACKED" for name, kind in columns if pa.types.is_integer(kind)}
    encodings |= {name: "BYTE_STREAM_SPLIT" for name, kind in columns if pa.types.is_floating(kind)}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        arrow_table, path, compression="zstd", compression_level=19, column_encoding=encodings,
        use_dictionary=[name for name, _ in columns if name not in encodings],
        write_statistics=False, store_schema=False,
    )  # fmt: skip


def remove_undeclared(folder: Path) -> None:
    """Removes the tables in a folder that are no longer declared, and such columns of the others."""
    for name, table in TablesOnDisk(folder).items():
        declared = declared_tables()[name].all_names if name in declared_tables() else []
        kept = [column for column in declared if column in table]
        if kept != list(table.columns):
            write_small(folder / f"{name}.parquet", table[kept])


def render_study(study: Path, output: Path) -> None:
    """Writes the tables of answers, the documents and the figures that a study has into the folder `output`."""
    merged = TablesOnDisk(study / "tables", declared=declared_tables())
    tables = ChainMap(Summaries(merged), merged)
    tables_here, answers, figures = (
        sorted(path.stem for path in study.glob(pattern)) for pattern in ("tables/*.parquet", "answers/*", "figures/*")
    )
    for name in SUMMARY_NAMES:
        if name in tables_here:
            write_small(output / "tables" / f"{name}.parquet", tables[name])
    provenance = json.loads((study / "tables" / "provenance.json").read_text())
    for name, text in documents(tables, tables["runs"], provenance, answers).items():
        write_text(output / "answers" / f"{name}.md", text)
    for name in figures:
        svg = paper.drawn(paper.on_paper(panels.all_figures()[name], tables), ".svg")
        write_text(output / "figures" / f"{name}.svg", svg.decode())


def render_comparison(comparison: Path, output: Path) -> None:
    """Writes the tables, the document and the figure of a comparison into the folder `output`."""
    with TemporaryDirectory() as scratch:
        sides = map(side_results, (comparison / "before", comparison / "after"))
        for name, table in write_comparison(*sides, Path(scratch)).items():
            write_small(output / f"{name}.parquet", table)
        for name in ("comparison.md", "ratios.svg"):
            write_text(output / name, (Path(scratch) / name).read_text(encoding="utf-8"))


def side_results(side: Path) -> Results:
    """One side of a comparison, which may be without kernels."""
    tables = {"kernels": empty_table("kernels"), **TablesOnDisk(side / "tables")}
    return Results(side, tables, json.loads((side / "tables" / "provenance.json").read_text()))


def main() -> None:
    for study in STUDIES:
        remove_undeclared(study / "tables")
        render_study(study, study)
    for comparison in COMPARISONS:
        render_comparison(comparison, comparison)
    write_text(H200 / "tables" / "README.md", dictionary())


if __name__ == "__main__":
    main()
