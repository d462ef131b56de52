"""The declarations of all tables of a study, each read from the module that makes the table."""

from functools import cache
from importlib import import_module

from profile_grid.study.catalogue import MODULES_OF_TABLES, TABLES
from profile_grid.study.table_spec import TableSpec


@cache
def declared_tables() -> dict[str, TableSpec]:
    """The declaration of every table by name, in the catalogue's order."""
    by_name = {table.name: table for module in MODULES_OF_TABLES for table in import_module(module).TABLES}
    return {name: by_name[name] for name in TABLES}
