"""The two libraries of the page, from the packages vl-convert-python and itables, so that opening it loads nothing."""

import base64
import gzip
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib.resources import files

import vl_convert

VEGA_EMBED = "window.vegaEmbed = vegaEmbed;"


def begin_plots() -> None:
    """Begins on a thread what `plots_gzip_base64` returns, since it takes seconds."""
    _plots()


def plots_gzip_base64() -> str:
    """Vega, Vega-Lite and vega-embed, compressed from 0.9 MB to 0.4 MB."""
    return _plots().result()


@cache
def _plots() -> Future[str]:
    return ThreadPoolExecutor(1).submit(lambda: _gzip_base64(vl_convert.javascript_bundle(VEGA_EMBED).encode()))


@cache
def tables_gzip_base64() -> str:
    """DataTables, jQuery and what they need, as a JavaScript module, compressed from 0.6 MB to 0.2 MB."""
    return _gzip_base64(_data_tables("dt_bundle.js"))


@cache
def tables_style() -> str:
    """The style sheet of DataTables."""
    return _data_tables("dt_bundle.css").decode()


def _gzip_base64(script: bytes) -> str:
    return base64.b64encode(gzip.compress(script, 9, mtime=0)).decode()  # without a date, the page is always the same


def _data_tables(name: str) -> bytes:
    return (files("itables") / "html" / name).read_bytes()
