"""How the figures of (i) show categories: the same colour and lines in both."""

from __future__ import annotations

from collections.abc import Iterable

import altair as alt

from kernel_tables.page.colors import BLUE, GREEN, GREY, ORANGE, PALE, PURPLE, VERMILLION
from profile_grid.figures.marks import BAR_SYMBOL
from profile_grid.figures.scales import legend
from profile_grid.figures.theme import fill
from profile_grid.quantities import GIBIBYTE, MEBIBYTE

STYLES = {  # in the order in which they are stacked
    "parameters": (BLUE, 0),
    "optimizer state": (PURPLE, 1),
    "gradients": (GREEN, 0),
    "activations": (VERMILLION, 2),
    "temporary": (ORANGE, 0),
    "workspace": (GREY, 1),
    "data": (PALE, 0),
}
ORDER = {name: position for position, name in enumerate(STYLES)}


def category_fill(names: Iterable[str], lined: bool = True) -> alt.Fill:
    """The channel of the fills of these categories; lines follow a bar, and would cross areas."""
    present = [name for name in STYLES if name in set(names)]
    scale = alt.Scale(
        domain=present, range=[fill(color, lines if lined else 0) for color, lines in map(STYLES.get, present)]
    )
    return alt.Fill("category:N", scale=scale, legend=legend(present, symbolSize=BAR_SYMBOL))


def unit_of(largest_bytes: float) -> tuple[int, str]:
    """The unit in which an axis shows sizes up to this one."""
    return (GIBIBYTE, "GiB") if largest_bytes >= GIBIBYTE else (MEBIBYTE, "MiB")
