"""A packed image holds the pixels of the image that was packed, read by a decoder of its own."""

import struct
import zlib

import numpy as np
import pytest
import vl_convert

from profile_grid.figures.paper import packed_png

FEW, MANY = 3, 500  # colours
LEFT, UP = 1, 2


def image(colors: int, alpha: int = 255, filtered: int = LEFT) -> bytes:
    """An image of 40 × 30 pixels as vl-convert writes it."""
    number = np.arange(40 * 30) % colors
    pixels = np.stack([number & 255, number >> 8, 7 * number & 255, np.full(len(number), alpha)], 1).astype(np.uint8)
    pixels = pixels.reshape(30, 40, 4)
    before = np.zeros_like(pixels)
    if filtered == LEFT:
        before[:, 1:] = pixels[:, :-1]
    else:
        before[1:] = pixels[:-1]
    rows = np.hstack([np.full((30, 1), filtered, np.uint8), (pixels - before).reshape(30, -1)])
    head = struct.pack(">IIBBBBB", 40, 30, 8, 6, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"pHYs", bytes(9)), (b"IDAT", zlib.compress(rows.tobytes(), 1)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def decoded(png: bytes) -> list[tuple[int, ...]]:
    """Red, green and blue of each pixel, one by one; asserts that the sums over chunks are right."""
    at, chunks = 8, {}
    while at < len(png):
        (length,), name = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        data = png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length]) == (zlib.crc32(name + data),)
        chunks[name], at = data, at + 12 + length
    assert {*chunks} - {b"PLTE"} == {b"IHDR", b"pHYs", b"IDAT", b"IEND"}
    width, height, _, kind = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    size = {2: 3, 3: 1, 6: 4}[kind]
    raw, found = zlib.decompress(chunks[b"IDAT"]), []
    for y in range(height):
        row = raw[y * (width * size + 1) : (y + 1) * (width * size + 1)]
        before = (0,) * size
        for x in range(width):
            value = tuple(row[1 + x * size : 1 + (x + 1) * size])
            if row[0] == LEFT:
                value = tuple((one + left) % 256 for one, left in zip(value, before, strict=True))
            before = value
            listed = chunks[b"PLTE"][3 * value[0] : 3 * value[0] + 3] if kind == 3 else value
            found.append(tuple(listed[:3]))
    return found


@pytest.mark.parametrize(("colors", "kind"), [(FEW, 3), (256, 3), (257, 2), (MANY, 2)])
def test_every_pixel_is_as_it_was(colors, kind):
    before = image(colors)
    after = packed_png(before)
    assert after[25] == kind
    assert len(set(decoded(before))) == colors
    assert decoded(after) == decoded(before)


def test_a_figure_takes_less_than_half_of_its_bytes_and_keeps_its_pixels():
    bars = {
        "data": {"values": [{"a": 1}, {"a": 3}]},
        "mark": "bar",
        "encoding": {"x": {"field": "a", "type": "nominal"}},
    }
    before = vl_convert.vegalite_to_png(bars | {"background": "white"})
    assert len(packed_png(before)) < len(before) / 2
    assert decoded(packed_png(before)) == decoded(before)


@pytest.mark.parametrize("changed", [{"alpha": 254}, {"filtered": UP}])
def test_an_image_of_another_form_stays_as_it_is(changed):
    assert packed_png(image(FEW, **changed)) == image(FEW, **changed)
