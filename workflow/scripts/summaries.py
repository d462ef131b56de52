"""The tables that answer the questions: `python -m workflow.scripts summaries --tables results/tables`."""

from pathlib import Path

from profile_grid.documents.summaries import summary_tables
from profile_grid.files import write_table
from profile_grid.tables.on_disk import COLUMNS_FOR_SUMS, TablesOnDisk, declared_tables


def main(*, tables: Path) -> None:
    """Writes the summary tables into `tables`, the folder of the merged tables."""
    merged = TablesOnDisk(tables, columns=COLUMNS_FOR_SUMS, declared=declared_tables())
    for name, table in summary_tables(merged).items():
        write_table(tables / f"{name}.csv", table)
