"""The two libraries of the page, from the packages plotly and itables: nothing is fetched when it is opened."""

from __future__ import annotations

import base64
import gzip
from functools import cache
from importlib.resources import files

PLOTS = ("plotly", "package_data", "plotly.min.js")
TABLES = ("itables", "html", "dt_bundle.js")
TABLES_STYLE = ("itables", "html", "dt_bundle.css")


@cache
def plots_gzip_base64() -> str:
    """plotly.js, compressed (4.8 MB become 2), with no date in it so that the page is the same every time."""
    return base64.b64encode(gzip.compress(_bytes(PLOTS), 9, mtime=0)).decode()


@cache
def tables_base64() -> str:
    """DataTables, jQuery and what they need, as one JavaScript module."""
    return base64.b64encode(_bytes(TABLES)).decode()


@cache
def tables_style() -> str:
    """The style sheet of DataTables."""
    return _bytes(TABLES_STYLE).decode()


def _bytes(place: tuple[str, ...]) -> bytes:
    package, *path = place
    return files(package).joinpath(*path).read_bytes()
