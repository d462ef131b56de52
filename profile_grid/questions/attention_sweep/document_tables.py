"""The tables that the document on attention alone shows: one per precision and figure, as the course has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pandas as pd

from kernel_tables.markdown import Table, escaped
from profile_grid.quantities import ABSENT, known, memory, with_spread
from profile_grid.questions.attention_sweep.table import PLACE
from profile_grid.results.results import COMPLETE
from profile_grid.tables.apart import pivoted
from profile_grid.tables.cells import status_word
from profile_grid.tables.measured import Measured

CELL = ["forward_ms", "forward_std_ms", "backward_ms", "backward_std_ms", "memory_before_backward_bytes", "status"]
TITLES = {"forward": "Forward pass, ms", "backward": "Backward pass, ms", "memory": "In use before the backward pass"}


def cell_tables(measured: Measured) -> Iterator[tuple[str, Table]]:
    """Per precision and figure a table with its title: a line per width of head and context length, a column per
    variant."""
    for precision, cells in measured.tables["attention_sweep"].groupby("precision", sort=False):
        for name, title in TITLES.items():
            if name != "memory" or cells["memory_before_backward_bytes"].notna().any():
                yield f"{title}, in {precision}", _table(cells, _TEXT[name])


def most_passes(machines: Iterable[Measured]) -> int:
    """The measured passes of a cell that was measured to its end."""
    return max((int(count) for one in machines for count in one.tables["attention_sweep"]["passes"]), default=0)


def _table(cells: pd.DataFrame, text: Callable[[pd.Series], str]) -> Table:
    variants = list(dict.fromkeys(cells["variant"]))
    wide = pivoted(cells, PLACE, "variant", CELL)
    several = cells["batch_size"].nunique() > 1
    lines = []
    for place in sorted(wide.index):
        values = dict(zip(PLACE, place, strict=True))
        shown = (str(values[key]) for key in ("head_dim", "context_length", *(["batch_size"] if several else [])))
        own = wide.loc[place]
        found = (text(pd.Series({name: own[(name, variant)] for name in CELL})) for variant in variants)
        lines.append((*shown, *found))
    headings = ("d", "context", *(["batch"] if several else []), *(escaped(variant) for variant in variants))
    return Table(headings, tuple(lines), first_right=0)


def _pass(which: str) -> Callable[[pd.Series], str]:
    def text(cell: pd.Series) -> str:
        if cell["status"] == COMPLETE:
            return with_spread(cell[f"{which}_ms"], cell[f"{which}_std_ms"])
        return status_word(cell["status"]) if known(cell["status"]) else ABSENT

    return text


def _memory(cell: pd.Series) -> str:
    if cell["status"] == COMPLETE and known(cell["memory_before_backward_bytes"]):
        return memory(cell["memory_before_backward_bytes"])
    return status_word(cell["status"]) if known(cell["status"]) else ABSENT


_TEXT = {"forward": _pass("forward"), "backward": _pass("backward"), "memory": _memory}
