"""A font file in which every character is the same rectangle, under any family name."""

from __future__ import annotations

import struct

UNITS = 1000  # per em
WIDTH = 900  # of a character, wider than nearly every letter of a real font
FAMILY, STYLE, FULL_NAME, POSTSCRIPT_NAME = 1, 2, 4, 6


def font(family: str) -> bytes:
    """A TrueType font of that family, regular."""
    glyph = _rectangle()
    tables = {
        b"cmap": struct.pack(">HHHHI", 0, 1, 0, 6, 12) + struct.pack(">HHIII3I", 13, 0, 28, 0, 1, 0x20, 0x2FFF, 1),
        b"glyf": glyph,
        b"head": struct.pack(
            ">IIIIHHQQ4hHHhhh", 1 << 16, 1 << 16, 0, 0x5F0F3CF5, 0, UNITS, 0, 0, 0, 0, WIDTH, 700, 0, 8, 2, 1, 0
        ),
        b"hhea": struct.pack(">I3hH11hH", 1 << 16, 800, -200, 0, WIDTH, *[0] * 11, 2),
        b"hmtx": struct.pack(">HhHh", WIDTH, 0, WIDTH, 0),
        b"loca": struct.pack(">3I", 0, 0, len(glyph)),  # the first glyph, of absent characters, is empty
        b"maxp": struct.pack(">I14H", 1 << 16, 2, 4, 1, *[0] * 11),
        b"name": _names(family),
    }
    return _file(tables)


def _rectangle() -> bytes:
    on_curve, steps = bytes([1] * 4), struct.pack(">8h", 0, 800, 0, -800, 0, 0, 700, 0)
    return struct.pack(">5hHH", 1, 0, 0, 800, 700, 3, 0) + on_curve + steps


def _names(family: str) -> bytes:
    texts = {FAMILY: family, STYLE: "Regular", FULL_NAME: family, POSTSCRIPT_NAME: family.replace(" ", "")}
    records, text = b"", b""
    for name, value in texts.items():
        encoded = value.encode("utf-16-be")
        records += struct.pack(">6H", 3, 1, 0x409, name, len(encoded), len(text))
        text += encoded
    return struct.pack(">3H", 0, len(texts), 6 + len(records)) + records + text


def _file(tables: dict[bytes, bytes]) -> bytes:
    directory, data = struct.pack(">IHHHH", 1 << 16, len(tables), 128, 3, 0), b""
    for name, content in tables.items():
        directory += struct.pack(">4sIII", name, 0, 12 + 16 * len(tables) + len(data), len(content))
        data += content + bytes(-len(content) % 4)
    return directory + data
