"""The tables of the memory of one run: from memory.json and memory_history.json.gz to the tables beside them.

    python -m workflow.scripts.memory_tables results/runs/RUN/memory.json

State n is what is live after event n (an allocation or a release), so a range begins in the state before its first
event. What the model, the optimizer or the step holds at the end has that as its category. Any other allocation has one
by its life:

- communication, if it was made in a range of communication and is no gradient by the rule below
- workspace, if it was never freed
- activations, if it was made in the forward pass or loss and was live when the backward pass of its step began
- gradients, if it was made in the backward pass, was live at its end, and was freed later
- temporary otherwise
"""

from cs336_model import locks

if __name__ == "__main__":
    LOCK = locks.shared()  # nothing heavy is imported beside a measured step

import gzip
import json
import sys
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

from cs336_model.ranges import COMMUNICATION
from cs336_model.results import BadResult, Memory, read_result
from kernel_tables.errors import NotConserved
from workflow.tables import make_table, write_tables

TABLES = ("memory_phases", "memory_activations", "memory_timeline", "memory_totals")
CATEGORIES = [
    "parameters", "gradients", "optimizer state", "activations", "temporary", "communication", "workspace", "data",
]  # fmt: skip
OUTSIDE, NO_RANGE = "(outside)", "(no inner range)"
MAX_MOMENTS = 400


class History:
    """The allocations, ranges and times of a process, and the bytes that were live, by state and category."""

    def __init__(self, record: dict) -> None:
        self.time_us = np.array(record["time_us"])
        self.ranges = describe_ranges(record["ranges"], len(self.time_us))
        columns = record["allocations"]
        made_in = self.ranges.reindex([-1 if number is None else number for number in columns["range"]])
        outside = {"phase": OUTSIDE, "part": NO_RANGE, "step": -1, "is_communication": False}
        made_in = made_in.reset_index(drop=True).fillna(outside)
        freed = [len(self.time_us) if event is None else event for event in columns["freed"]]
        self.allocations = made_in[list(outside)].assign(
            bytes=columns["bytes"], made=columns["made"], freed=freed,
            held=pd.Series(columns["held"], dtype=object).fillna(""),
        )  # fmt: skip
        self.allocations["category"] = self.categories()

    def categories(self) -> np.ndarray:
        """By allocation, what it holds: what PyTorch said that it is held for, or else what its life tells."""
        rows, ranges = self.allocations, self.ranges
        backward = ranges[(ranges["phase"] == "backward") & (ranges["part"] == NO_RANGE)].set_index("step")
        begin, end = (rows["step"].map(backward[name]).fillna(np.inf) for name in ("opened", "closed"))
        was_freed = rows["freed"] < len(self.time_us)
        is_gradient = was_freed & (rows["phase"] == "backward") & (rows["freed"] >= end)
        is_activation = rows["phase"].isin(["forward", "loss"]) & (rows["freed"] >= begin)
        cases = {
            "communication": rows["is_communication"].astype(bool) & ~is_gradient, "workspace": ~was_freed,
            "activations": is_activation, "gradients": is_gradient,
        }  # fmt: skip
        by_life = np.select(list(cases.values()), list(cases), "temporary")
        return np.where(rows["held"] != "", rows["held"], by_life)

    @cached_property
    def live(self) -> np.ndarray:
        """Live bytes in the shape (states, categories)."""
        rows = self.allocations
        changes = np.zeros((len(self.time_us) + 1, len(CATEGORIES)), dtype="int64")
        category = rows["category"].map(CATEGORIES.index).to_numpy()
        np.add.at(changes, (rows["made"], category), rows["bytes"])
        np.add.at(changes, (rows["freed"], category), -rows["bytes"])  # never freed: in the row that is cut off
        return changes[:-1].cumsum(axis=0)

    @cached_property
    def total(self) -> np.ndarray:
        """By state, all live bytes."""
        return self.live.sum(axis=1)

    @cached_property
    def steps(self) -> list[int]:
        """The numbers of the ranges of measured steps."""
        names, inside = self.ranges["name"], self.ranges["inside"]
        return [number for number in self.ranges.index[names == "step"] if names.get(inside[number]) == "measure"]

    def spans(self, step: int) -> list[tuple[str, int, int]]:
        """(name, first event, event after) of the step and of its phases."""
        rows = self.ranges[(self.ranges.index == step) | (self.ranges["inside"] == step)]
        return list(rows[["name", "opened", "closed"]].itertuples(index=False, name=None))

    def find_peak(self, first: int, after: int) -> int:
        """The first state in which most bytes are live, from the state before the event `first` on."""
        begin = max(first - 1, 0)
        return begin + int(self.total[begin : max(after, begin + 1)].argmax())


def describe_ranges(columns: dict[str, list], events: int) -> pd.DataFrame:
    """A row per range: its own columns, the range of the step around it (−1 outside of all), the phase, and the part:
    its name, if it is inside a phase."""
    rows: list[dict] = []
    outermost = {"step": -1, "phase": OUTSIDE, "part": NO_RANGE, "is_communication": False}
    listed = zip(*(columns[key] for key in ("name", "inside", "opened", "closed")), strict=True)
    for number, (name, inside, opened, closed) in enumerate(listed):
        row = dict(outermost if inside is None else rows[inside])
        row |= {"name": name, "inside": -1 if inside is None else inside, "opened": opened}
        row["closed"] = events if closed is None else closed
        if name == "step":
            row["step"] = number
        elif row["step"] >= 0 and row["phase"] == OUTSIDE:
            row["phase"] = name
        elif row["step"] >= 0:
            row["part"] = name
        row["is_communication"] |= name.startswith(COMMUNICATION)
        rows.append(row)
    return pd.DataFrame(rows, columns=["name", "inside", "opened", "closed", *outermost])


def sum_phases(history: History) -> pd.DataFrame:
    """A row per category for every phase of a measured step and for the step, each at its peak; then of the process."""
    spans = [(number, *span) for number, step in enumerate(history.steps) for span in history.spans(step)]
    rows = []
    for step, name, first, after in [*spans, (-1, "process", 0, len(history.total))]:
        live = history.live[history.find_peak(first, after)]
        rows += [(step, name, category, size) for category, size in zip(CATEGORIES, live, strict=True)]
    return pd.DataFrame(rows, columns=["step", "phase", "category", "bytes"])


def sum_activations(history: History) -> pd.DataFrame:
    """What the last measured step keeps for its backward pass, by part of the model."""
    rows = history.allocations
    rows = rows[(rows["category"] == "activations") & (rows["step"] == history.steps[-1])]
    return rows.groupby("part", sort=False)["bytes"].agg(bytes="sum", allocations="count").reset_index()


def list_moments(history: History) -> pd.DataFrame:
    """The last measured step in at most 400 moments, each the peak of its slice of the events."""
    (_, first, after), *phases = history.spans(history.steps[-1])
    states = np.arange(max(first - 1, 0), after)
    chosen = [part[history.total[part].argmax()] for part in np.array_split(states, min(MAX_MOMENTS, len(states)))]
    columns = [f"{category.replace(' ', '_')}_bytes" for category in CATEGORIES]
    return pd.DataFrame(history.live[chosen], columns=columns).assign(
        moment=range(len(chosen)), ms=(history.time_us[chosen] - history.time_us[states[0]]) / 1e3,
        phase=[next((name for name, begin, end in phases if begin <= state < end), OUTSIDE) for state in chosen],
        live_bytes=history.total[chosen],
    )  # fmt: skip


def make_tables(result: Memory, history: History) -> dict[str, pd.DataFrame]:
    """The tables by name. Raises NotConserved if the recorded allocations miss the peak that the allocator counted."""
    found, counted = int(history.total.max(initial=0)), result.requested_peak_bytes
    if found != counted:
        raise NotConserved(f"peak in bytes: the recorded allocations give {found}, the allocator counted {counted}")
    return {
        "memory_phases": sum_phases(history),
        "memory_activations": sum_activations(history),
        "memory_timeline": list_moments(history),
        "memory_totals": make_table("memory_totals", [msgspec.to_builtins(result)], keys=False),
    }


def main(result: Path) -> None:
    """Writes TABLES beside the result; without rows if it is not complete. Raises BadResult and NotConserved."""
    measured, made = read_result(result), {}
    if measured.status == "complete":
        record = json.loads(gzip.decompress(result.with_name("memory_history.json.gz").read_bytes()))
        try:
            made = make_tables(measured, History(record))
        except NotConserved as error:
            again = f"some are missing, measure again: snakemake --forcerun {result}"
            raise NotConserved(f"{result}: {error}; {again}") from None
    write_tables(made, [result.with_name(f"{name}.parquet") for name in TABLES], keys=False)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except (BadResult, NotConserved) as error:
        sys.exit(str(error))
