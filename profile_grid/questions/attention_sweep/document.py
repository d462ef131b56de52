"""What the document on attention alone says: sentences, and tables per precision and figure, as the course has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import pandas as pd

from cs336_model.program.variants.values import EAGER
from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, interval, known, memory, ratio, significant, with_spread
from profile_grid.questions.attention_sweep.table import PASSES, PLACE
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY, UNSUPPORTED
from profile_grid.tables.apart import pivoted
from profile_grid.tables.cells import status_word
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import leaders, listed

WHERE_IN_PYTORCH = re.compile(r" *\(Triggered internally at [^)]*\)?")
CELL = ["forward_ms", "forward_std_ms", "backward_ms", "backward_std_ms", "memory_before_backward_bytes", "status"]
TITLES = {"forward": "Forward pass, ms", "backward": "Backward pass, ms", "memory": "In use before the backward pass"}


def sentences(measured: Measured) -> list[str]:
    """By precision: the fastest variant, speed-ups over the written-out attention, and what was not measured."""
    table, found = measured.tables["attention_sweep"], []
    for precision, cells in table.groupby("precision", sort=False):
        done = cells[cells["status"] == COMPLETE]
        if len(done):
            found += [*_fastest(done, precision), *_gains(done, precision)]
        found += [*_memory(cells, precision), *_refused(cells, precision)]
    if sentences := [*found, *_compiling(table)]:
        return sentences
    if (table["status"] == COMPLETE).any():
        return ["One variant was measured, so there is nothing to compare it with; its times are below."]
    return ["Not answered: no cell was measured."]


def _fastest(done: pd.DataFrame, precision: str) -> list[str]:
    """The variant with the shortest forward and backward pass together by length, where several were measured."""
    both = done.assign(ms=done["forward_ms"] + done["backward_ms"])
    both = both[both.groupby(PLACE)["variant"].transform("nunique") > 1]
    if both.empty:
        return []
    first = both.loc[both.groupby(PLACE, sort=False)["ms"].idxmin()].sort_values("context_length")
    by_length = {
        int(length): leaders([escaped(name) for name in own["variant"]])
        for length, own in first.groupby("context_length")
    }
    told = [
        f"{_at([length for length, fastest in by_length.items() if fastest == name])} {name}"
        for name in dict.fromkeys(by_length.values())
    ]
    return [f"In {precision}, fastest in forward and backward pass together is {listed(told)}."]


def _at(lengths: list[int]) -> str:
    return f"at context {listed([str(length) for length in lengths])}"


def _gains(done: pd.DataFrame, precision: str) -> list[str]:
    """Speed-ups of each variant."""
    told = []
    for variant, own in done[done["forward_speed_up"].notna()].groupby("variant", sort=False):
        forward, backward = (interval(own[f"{which}_speed_up"], ratio) for which in PASSES)
        told.append(f"{escaped(variant)} {forward} forward and {backward} backward")
    return [f"Times as fast as written out in {precision}: {listed(told)}."] if told else []


def _memory(cells: pd.DataFrame, precision: str) -> list[str]:
    """The shortest context at which each variant runs out of memory; and what is in use before the backward pass."""
    found = []
    out = cells[cells["status"] == OUT_OF_MEMORY]
    if len(out):
        shortest = out.groupby("variant", sort=False)["context_length"].min()
        told = [f"{escaped(variant)} from context {length} on" for variant, length in shortest.items()]
        found.append(f"In {precision} memory runs out for {listed(told)}.")
    longest = cells[cells["memory_before_backward_bytes"].notna()]
    longest = longest[longest["context_length"] == longest["context_length"].max()]
    if len(longest):
        told = [
            f"{escaped(variant)} {interval(own['memory_before_backward_bytes'], memory)}"
            for variant, own in longest.groupby("variant", sort=False)
        ]
        length = longest["context_length"].iloc[0]
        found.append(f"In use before the backward pass at context {length} in {precision}: {listed(told)}.")
    return found


def _refused(cells: pd.DataFrame, precision: str) -> list[str]:
    refused = cells[cells["status"] == UNSUPPORTED]
    reasons = dict.fromkeys(WHERE_IN_PYTORCH.sub("", reason).rstrip(".") for reason in refused["reason"])
    told = [escaped(reason) for reason in reasons]
    return [f"Not supported here in {precision}: {'; '.join(told)}."] if told else []


def _compiling(table: pd.DataFrame) -> list[str]:
    seconds = table["compile_s"].dropna()
    if seconds.empty:
        return []
    return [
        f"Compiling {EAGER}'s code takes {interval(seconds, significant)} s per cell, with a cache that is empty first."
    ]


def cell_tables(measured: Measured) -> Iterator[tuple[str, MarkdownTable]]:
    """Per precision and figure a table with its title: a line per width of head and context length, a column per
    variant."""
    for precision, cells in measured.tables["attention_sweep"].groupby("precision", sort=False):
        for name, title in TITLES.items():
            if name != "memory" or cells["memory_before_backward_bytes"].notna().any():
                yield f"{title}, in {precision}", _table(cells, TEXT_OF_CELL[name])


def most_passes(machines: Iterable[Measured]) -> int:
    """The measured passes of a cell that was measured to its end."""
    return max((int(count) for one in machines for count in one.tables["attention_sweep"]["passes"]), default=0)


def _table(cells: pd.DataFrame, text: Callable[[pd.Series], str]) -> MarkdownTable:
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
    return MarkdownTable(headings, tuple(lines), first_right=0)


def _pass_cell(which: str) -> Callable[[pd.Series], str]:
    def text(cell: pd.Series) -> str:
        if cell["status"] == COMPLETE:
            return with_spread(cell[f"{which}_ms"], cell[f"{which}_std_ms"])
        return status_word(cell["status"]) if known(cell["status"]) else ABSENT

    return text


def _memory_cell(cell: pd.Series) -> str:
    if cell["status"] == COMPLETE and known(cell["memory_before_backward_bytes"]):
        return memory(cell["memory_before_backward_bytes"])
    return status_word(cell["status"]) if known(cell["status"]) else ABSENT


TEXT_OF_CELL = {"forward": _pass_cell("forward"), "backward": _pass_cell("backward"), "memory": _memory_cell}
