"""The data dictionary: `python -m workflow.scripts dictionary --tables results/tables --output .../README.md`."""

from pathlib import Path

from profile_grid.documents.dictionary import dictionary
from profile_grid.files import write_text
from profile_grid.study.catalogue import table_names_of
from profile_grid.tables.on_disk import TablesOnDisk, declared_tables


def main(*, tables: Path, output: Path) -> None:
    """Writes the dictionary to `output`. The tables in the folder `tables` must agree with it."""
    on_disk = TablesOnDisk(tables)
    for name in table_names_of(on_disk["runs"].to_dict("records")):
        declared_tables()[name].check(on_disk[name])
    write_text(output, dictionary())
