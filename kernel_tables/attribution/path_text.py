"""A path of range names as one text, and back, also where names contain the separator."""

import re
from collections.abc import Iterable

PATH_SEPARATOR = " > "
# A ">" between spaces in a name would look like a separator, so it gets a backslash in addition to those before it.
STANDALONE = re.compile(r"(?<!\S)(\\*>)(?!\S)")
ESCAPED = re.compile(r"(?<!\S)\\(\\*>)(?!\S)")


def escaped_name(name: str) -> str:
    r"""The name as it is in a path: "a \> b" for "a > b"."""
    return STANDALONE.sub(r"\\\1", name) if ">" in name else name


def as_path(names: Iterable[str]) -> str:
    """The path of these names, outermost first; paths of different names differ."""
    return PATH_SEPARATOR.join(map(escaped_name, names))


def names_in(path: str) -> list[str]:
    """The names in the path; none in "", the path of no range."""
    return [_unescaped(part) for part in path.split(PATH_SEPARATOR)] if path else []


def innermost(path: str) -> str:
    """The last name of the path; "" if it has none."""
    return _unescaped(path.rpartition(PATH_SEPARATOR)[2])


def _unescaped(part: str) -> str:
    return ESCAPED.sub(r"\1", part) if ">" in part else part
