"""Every text of a drawn figure with the box that it takes, from Vega's own scene graph: to find what overlaps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from profile_grid.figures.paper import vl_convert

CHARACTER = 0.48  # of the font's size: the mean width of a character of Liberation Sans, or a little less
LINE = 0.8  # of the font's size: from the top of a capital to its foot


@dataclass(frozen=True)
class Box:
    """One line of text and its place in pixels."""

    text: str
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        """Whether both take the same pixels: more than a hairline."""
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return across > 1 and down > 1


def overlapping(specification: dict) -> list[tuple[str, str]]:
    """Pairs of texts in the figure of which one lies on the other."""
    boxes = list(text_boxes(specification))
    return [(one.text, other.text) for one, other in combinations(boxes, 2) if one.overlaps(other)]


def text_boxes(specification: dict) -> Iterator[Box]:
    """The box of every visible line of text."""
    yield from _boxes(vl_convert.vegalite_to_scenegraph(specification)["scenegraph"], 0, 0)


def _boxes(mark: dict, x: float, y: float) -> Iterator[Box]:
    for item in mark.get("items", []):
        left, top = x + item.get("x", 0), y + item.get("y", 0)
        if mark.get("marktype") == "text" and item.get("text") and item.get("opacity", 1) > 0:
            yield from _lines(item, left, top)
        for inner in item.get("items", []):
            yield from _boxes(inner, left, top)


def _lines(item: dict, x: float, y: float) -> Iterator[Box]:
    size, lines = item.get("fontSize", 11), item["text"] if isinstance(item["text"], list) else [item["text"]]
    for number, line in enumerate(map(str, lines)):
        width, height = CHARACTER * size * len(line), LINE * size
        before = {"right": 1, "center": 0.5}.get(item.get("align", "left"), 0) * width
        above = {"top": 0, "middle": 0.5, "bottom": 1}.get(item.get("baseline", "alphabetic"), 1) * height
        along, across = (
            -before + item.get("dx", 0),
            -above + item.get("dy", 0) + number * item.get("lineHeight", size + 2),
        )
        if item.get("angle"):  # an axis title that reads from below to above
            yield Box(line, x + across, y - along - width, x + across + height, y - along)
        else:
            yield Box(line, x + along, y + across, x + along + width, y + across + height)
