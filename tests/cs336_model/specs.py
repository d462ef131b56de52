"""Run specifications for tests."""

from profile_grid.study.dimensions import KEYS


def changed(values: dict, **changes) -> dict:
    """The specification with other values; those of dimensions are put where they belong."""
    own = {key: value for key, value in changes.items() if key in KEYS}
    others = {key: value for key, value in changes.items() if key not in KEYS}
    return values | {"dimensions": values["dimensions"] | own} | others
