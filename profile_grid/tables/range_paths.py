"""The column `range` of the tables: names of ranges, outermost first, in one text."""

from __future__ import annotations

from kernel_tables.attribution.paths import PATH_SEPARATOR


def names_in(path: str) -> list[str]:
    """The names of the path; none where what it stands for was in no range."""
    return path.split(PATH_SEPARATOR) if path else []


def innermost(path: str) -> str:
    """The last name of the path; "" where it has none."""
    return path.rpartition(PATH_SEPARATOR)[2]
