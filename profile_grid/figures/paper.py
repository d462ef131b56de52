"""A figure on paper: the chart between its title and its notes, as SVG and PNG without a browser.

vl-convert draws with the fonts that it ships and none of the system's, so that a figure is the same on every machine.
It reads fonts once per process, on first use, and a system font hides a shipped font of the same name. Therefore this
module makes it read its fonts while fontconfig finds none, and all modules that draw import vl_convert from here. On
macOS and Windows, which do not use fontconfig, system fonts are still read.
"""

import os
import re
import struct
import tempfile
import textwrap
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import altair as alt
import numpy as np
import pandas as pd
import vl_convert

from profile_grid.figures.panels import Figure, Spec, Tables, column
from profile_grid.figures.run_selection import of_one_machine
from profile_grid.figures.theme import FONT_SIZE, ON_PAPER, SMALL, WIDTH, config
from profile_grid.files import replacing

__all__ = ["vl_convert"]

FONTCONFIG_FILE = "FONTCONFIG_FILE"  # the environment variable that names fontconfig's configuration
PNG_SCALE = 2
SUFFIXES = (".svg", ".png")
LINE_CHARACTERS, HEADLINE_CHARACTERS = 140, 80  # of a line of small text or of a headline, which fits in any usual font
# So that legends are drawn above the notes.
SEPARATE_LEGENDS = dict.fromkeys(("color", "fill", "stroke", "shape", "strokeDash"), "independent")
SVG_NAMESPACE, VEGA_SCHEMA = "http://www.w3.org/2000/svg", "https://vega.github.io/schema/vega/v5.json"
MAX_SHORT_CHARACTERS = 4  # of a text that fits in any font, such as a number on an axis
RECTANGLE = re.compile(r'<path d="M0,0h([\d.]+)v1h')  # group: its width
NUMBERED_ID = re.compile(r"(?:gradient_|clip)\d+")
# PNG: the signature; the filter of rows that store differences from the pixel on the left; types of pixels; the most
# colours of a palette; the alpha of an opaque pixel
SIGNATURE = b"\x89PNG\r\n\x1a\n"
LEFT_FILTER = 1
RGB, PALETTE, RGBA = 2, 3, 6
MAX_PALETTE = 256
OPAQUE = 255
WITHIN_NUMBER = re.compile(r"(?<=[×<]) (?=\d)|(?<=\d) (?=(?:%|\w+/s|[GM]iB|ms)(?!\w))")


def _read_shipped_fonts() -> None:
    original = os.environ.get(FONTCONFIG_FILE)
    with tempfile.TemporaryDirectory() as empty:
        file = Path(empty) / "fonts.conf"
        file.write_text(f"<fontconfig><dir>{empty}</dir></fontconfig>")
        os.environ[FONTCONFIG_FILE] = str(file)
        try:
            vl_convert.register_font_directory(empty)  # reads all fonts
        finally:
            os.environ.pop(FONTCONFIG_FILE)
            if original is not None:
                os.environ[FONTCONFIG_FILE] = original


_read_shipped_fonts()


def on_paper(figure: Figure, tables: Tables) -> Spec:
    """The figure of the machine with the most runs as a Vega-Lite specification. Its headline is the result, below it
    is the quantity; the notes below the chart end with the machine and what is left out."""
    machine_tables, machine, left_out = of_one_machine({name: tables[name] for name in figure.tables})
    drawing, result = figure.drawn(machine_tables)
    chart = drawing.chart if drawing.chart is not None else _text_chart(drawing.reason)
    texts = (*drawing.notes, *drawing.absent, f"Measured on {machine}.", *left_out)
    inner = column(chart, spacing=0, title=_notes([line for text in texts for line in wrapped(text)]))
    quantity = drawing.title or figure.title
    title = alt.TitleParams(
        wrapped(result or quantity, HEADLINE_CHARACTERS), subtitle=wrapped(quantity) if result else [],
        fontSize=FONT_SIZE + 4, fontWeight="bold", frame="bounds", offset=10,
    )  # fmt: skip
    return specification(column(inner, spacing=0, title=title, resolve={"scale": SEPARATE_LEGENDS}))


def specification(chart: Spec) -> Spec:
    """The complete input of Vega-Lite: the chart with the colours and the configuration of this project."""
    parameters = [{"name": name, "value": value} for name, value in ON_PAPER.items()] + chart.get("params", [])
    return {"$schema": alt.SCHEMA_URL, "config": config()} | chart | {"params": parameters}


def drawn(specification: Spec, suffix: str) -> bytes:
    """A figure as the bytes of an ".svg" or ".png" file: the same for the same figure, without dates or paths."""
    return _file_content(_svg(specification), suffix)


def write_figure(figure: Figure, tables: Tables, folder: Path) -> dict[str, bytes]:
    """Writes NAME.svg and NAME.png of the figure on paper, each complete or not at all; returns them by suffix."""
    svg = _svg(on_paper(figure, tables))
    files = {suffix: _file_content(svg, suffix) for suffix in SUFFIXES}
    for suffix, content in files.items():
        with replacing(folder / f"{figure.name}{suffix}") as partial:
            partial.write_bytes(content)
    return files


def wrapped(text: str, width: int = LINE_CHARACTERS) -> list[str]:
    """The lines of a text: broken at spaces, but not between a number and its sign or unit, and inside words that are
    longer than a line."""
    lines = textwrap.wrap(WITHIN_NUMBER.sub("\N{NO-BREAK SPACE}", text), width, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines] or [""]


def _text_chart(reason: str) -> Spec:
    lines = wrapped(reason, 90)
    text = alt.Chart(pd.DataFrame({"_": [0]})).mark_text(text=lines, fontSize=FONT_SIZE + 1)
    return column(text.properties(width=WIDTH, height=60 + 14 * len(lines)), spacing=0)


def _notes(lines: list[str]) -> alt.TitleParams:
    return alt.TitleParams(
        lines, orient="bottom", fontSize=SMALL, lineHeight=12, frame="bounds", offset=10, color=alt.ExprRef("soft")
    )


def _svg(specification: Spec) -> str:
    """The SVG without labels for screen readers, which do not read the marks of an image: half of the file."""
    config = specification.get("config", {}) | {"aria": False}
    return vl_convert.vegalite_to_svg(specification | {"background": "white", "config": config})


def _file_content(svg: str, suffix: str) -> bytes:
    return packed_png(vl_convert.svg_to_png(svg, scale=PNG_SCALE)) if suffix == ".png" else _for_browsers(svg).encode()


def _for_browsers(svg: str) -> str:
    """The SVG with its gradients and clips numbered from 0; the library goes on counting from one figure to the next.
    Long texts have a fixed width, so that they fit also in a browser that has only wider fonts."""
    ElementTree.register_namespace("", SVG_NAMESPACE)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(svg)
    new_ids: dict[str, str] = {}
    for element in root.iter():
        for name, value in element.attrib.items():
            if name == "id" or value.startswith("url(#"):
                new = NUMBERED_ID.sub(lambda match: new_ids.setdefault(match[0], f"paint{len(new_ids)}"), value)
                element.set(name, new)
    lines, vega_texts = [], []
    for text in root.iter(f"{{{SVG_NAMESPACE}}}text"):
        for line in (text, *text):
            if len(line.text or "") > MAX_SHORT_CHARACTERS:
                lines.append(line)
                vega_texts.append(_vega_text(line, text))
    for line, width in zip(lines, _widths(vega_texts), strict=True):
        line.attrib |= {"textLength": f"{width:.1f}", "lengthAdjust": "spacingAndGlyphs"}
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _vega_text(line: ElementTree.Element, text: ElementTree.Element) -> dict[str, str | float]:
    """A line of the text element `text` as Vega describes it: its content, size, weight and font."""
    return {
        "text": line.text,
        "fontSize": float(text.get("font-size").removesuffix("px")),
        "fontWeight": text.get("font-weight", "normal"),
        "font": text.get("font-family"),
    }


def _widths(vega_texts: Sequence[Mapping[str, str | float]]) -> list[float]:
    """The widths of lines as the library draws them: it draws a rectangle around each."""
    text = {name: {"field": name} for name in ("text", "fontSize", "fontWeight", "font")}
    around = {"x": {"field": "bounds.x1"}, "x2": {"field": "bounds.x2"}, "height": {"value": 1}}
    marks = [
        {"type": "text", "name": "lines", "from": {"data": "texts"}, "encode": {"enter": text}},
        {"type": "rect", "from": {"data": "lines"}, "encode": {"enter": around}},
    ]
    data = [{"name": "texts", "values": list(vega_texts)}]
    svg = vl_convert.vega_to_svg({"$schema": VEGA_SCHEMA, "data": data, "marks": marks})
    return [float(width) for width in RECTANGLE.findall(svg)]


def packed_png(png: bytes) -> bytes:
    """The same image in a quarter of the bytes or less: vl-convert writes an alpha channel that is opaque everywhere, a
    filter for photographs, and fast compression. Images that are not of this kind are returned unchanged."""
    chunks = list(_chunks(png))
    width, height, *pixel_format = struct.unpack(">IIBBBBB", chunks[0][1])
    rows = np.frombuffer(zlib.decompress(b"".join(data for name, data in chunks if name == b"IDAT")), np.uint8)
    # 8 bits, RGBA, the only methods of compression and filtering, not interlaced; each row begins with its filter.
    if pixel_format != [8, RGBA, 0, 0, 0] or (rows[:: 4 * width + 1] != LEFT_FILTER).any():
        return png
    differences = rows.reshape(height, 4 * width + 1)[:, 1:].reshape(height, width, 4)
    pixels = np.cumsum(differences, axis=1, dtype=np.uint8)  # modulo 256, as PNG defines it
    if (pixels[..., 3] != OPAQUE).any():
        return png
    pixel_type, palette, values = _fewest_bytes(pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, pixel_type, 0, 0, 0)
    unfiltered = np.hstack([np.zeros((height, 1), np.uint8), values.reshape(height, -1)])
    other_chunks = [chunk for chunk in chunks if chunk[0] not in (b"IHDR", b"IDAT", b"IEND")]
    body = [(b"IHDR", head), *other_chunks, *palette, (b"IDAT", zlib.compress(unfiltered.tobytes(), 9)), (b"IEND", b"")]
    return SIGNATURE + b"".join(_chunk(*chunk) for chunk in body)


def _fewest_bytes(pixels: np.ndarray) -> tuple[int, list[tuple[bytes, bytes]], np.ndarray]:
    """(type of the pixels, palette chunks, pixels of that type): a palette if there are few colours."""
    flat = pixels.view(np.uint32).ravel()
    # Where runs of equal pixels start, a hundredth of all pixels; `prepend` makes the first pixel a start.
    starts = np.flatnonzero(np.diff(flat, prepend=~flat[:1]))
    colors, color_index = np.unique(flat[starts], return_inverse=True)
    if len(colors) > MAX_PALETTE:
        return RGB, [], np.ascontiguousarray(pixels[..., :3])
    indices = np.repeat(color_index.astype(np.uint8), np.diff(starts, append=flat.size)).reshape(pixels.shape[:2])
    palette = colors.view(np.uint8).reshape(-1, 4)[:, :3]
    return PALETTE, [(b"PLTE", palette.tobytes())], indices


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    start = len(SIGNATURE)
    while start < len(png):
        (length,) = struct.unpack(">I", png[start : start + 4])
        yield png[start + 4 : start + 8], png[start + 8 : start + 8 + length]
        start += 12 + length


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
