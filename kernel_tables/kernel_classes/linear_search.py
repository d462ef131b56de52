"""Searching by regular expressions in a time that grows with the text and no faster: RE2, as it comes with Arrow.

Python's own engine tries every way to match: `(a|a|[a-z]+)+$!` does not end on a name of forty letters.
"""

from __future__ import annotations

from collections.abc import Sequence


def found_in(pattern: str, texts: Sequence[str]) -> list[bool]:
    """Whether the pattern is found in each text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not texts:
        return []
    return pc.match_substring_regex(pa.array(texts, pa.string()), pattern).to_pylist()


def unusable(pattern: str) -> str:
    """Why RE2 cannot search for the pattern, in its own words; empty where it can."""
    import pyarrow as pa

    try:
        found_in(pattern, [""])
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        return str(error).removeprefix("Invalid regular expression: ")
    return ""
