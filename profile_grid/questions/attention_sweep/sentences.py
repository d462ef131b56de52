"""The sentences on attention alone: what is fastest where, what each variant gains, where memory ends."""

from __future__ import annotations

import re

import pandas as pd

from cs336_model.program.variants.values import EAGER
from kernel_tables.markdown import escaped
from profile_grid.quantities import interval, memory, ratio, significant
from profile_grid.questions.attention_sweep.table import PASSES, PLACE
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY, UNSUPPORTED
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import leaders, listed

WHERE_IN_PYTORCH = re.compile(r" *\(Triggered internally at [^)]*\)?")


def sentences(measured: Measured) -> list[str]:
    """By precision: the fastest variant, speed-ups over the written-out attention, and what was not measured."""
    table, found = measured.tables["attention_sweep"], []
    for precision, cells in table.groupby("precision", sort=False):
        done = cells[cells["status"] == COMPLETE]
        if len(done):
            found += [*_fastest(done, precision), *_gains(done, precision)]
        found += [*_memory(cells, precision), *_refused(cells, precision)]
    return [*found, *_compiling(table)] or ["Not answered: no cell was measured."]


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
