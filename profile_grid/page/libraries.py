"""The two libraries of the page, from the packages vl-convert-python and itables: opening it fetches nothing."""

import base64
import gzip
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib.resources import files

import vl_convert

VEGA_EMBED = "window.vegaEmbed = vegaEmbed;"
TABLES = ("itables", "html", "dt_bundle.js")
TABLES_STYLE = ("itables", "html", "dt_bundle.css")


def begin_plots() -> None:
    """Starts to make the result of `plots_gzip_base64` on a thread, since it takes seconds."""
    _plots()


def plots_gzip_base64() -> str:
    """Vega, Vega-Lite and vega-embed, compressed (0.9 MB become 0.4)."""
    return _plots().result()


@cache
def _plots() -> Future[str]:
    return ThreadPoolExecutor(1).submit(lambda: _packed(vl_convert.javascript_bundle(VEGA_EMBED).encode()))


@cache
def tables_gzip_base64() -> str:
    """DataTables, jQuery and what they need, as a JavaScript module, compressed (0.6 MB become 0.3)."""
    return _packed(_bytes(TABLES))


@cache
def tables_style() -> str:
    """The style sheet of DataTables."""
    return _bytes(TABLES_STYLE).decode()


def _packed(script: bytes) -> str:
    """Without a date, so that every page is the same."""
    return base64.b64encode(gzip.compress(script, 9, mtime=0)).decode()


def _bytes(parts: tuple[str, ...]) -> bytes:
    package, *path = parts
    return files(package).joinpath(*path).read_bytes()
