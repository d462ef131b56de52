"""What one machine measured, as the sentences and tables of the answers read it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from profile_grid.markdown import escaped
from profile_grid.merging.machines import Machine
from profile_grid.quantities import known

MODES = {"forward": "forward pass", "forward_backward": "forward + backward", "train_step": "training step"}
MAIN_PHASES = ("forward", "loss", "backward", "optimizer")
SHORT_NAME = re.compile(r"[\w:.]{1,30}", re.ASCII)  # needs neither a label nor a legend
COMPLETE, OUT_OF_MEMORY = "complete", "out_of_memory"


@dataclass(frozen=True)
class Words:
    """What things are called on this kind of device."""

    device: str = "GPU"
    kernel: str = "kernel"
    kernels: str = "kernels"
    kernel_title: str = "CUDA kernel"
    time: str = "GPU time"


ON_GPU = Words()
ON_CPU = Words(device="CPU", kernel="operator", kernels="operators", kernel_title="ATen operator", time="operator time")


@dataclass(frozen=True)
class Measured:
    """The runs of one machine, the summary tables of these runs, and a short label per kernel name."""

    machine: Machine
    runs: pd.DataFrame
    tables: dict[str, pd.DataFrame]
    labels: dict[str, str]

    @property
    def words(self) -> Words:
        return ON_CPU if self.machine.on_cpu else ON_GPU

    @property
    def inference_mode(self) -> str:
        """The mode whose forward pass answers for inference: `forward` where the grid has it."""
        present = list(self.runs["mode"])
        return next((mode for mode in MODES if mode in present), present[0])

    @property
    def training_mode(self) -> str | None:
        """The mode that answers for training: the whole step where the grid has it."""
        return next((mode for mode in ("train_step", "forward_backward") if mode in set(self.runs["mode"])), None)

    @property
    def has_kernels(self) -> bool:
        return not self.tables["class_shares"].empty

    def inference(self, name: str) -> pd.DataFrame:
        """The rows of a summary table that belong to the runs of the inference mode."""
        return self.mode(name, self.inference_mode)

    def mode(self, name: str, mode: str) -> pd.DataFrame:
        table = self.tables[name]
        return table[table["mode"] == mode]

    def label(self, kernel: str) -> str:
        """What stands for a kernel in tables and sentences, in Markdown: its name if that is short, else its label."""
        return f"`{kernel}`" if SHORT_NAME.fullmatch(kernel) else f"**{escaped(self.labels[kernel])}**"


def measured(machine: Machine, names: list[str], runs: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> Measured:
    """The part of all tables that these runs of one machine have."""
    own = {name: table[table["run"].isin(names)] for name, table in tables.items()}
    return Measured(machine, runs[runs["run"].isin(names)], own, kernel_labels(own["top_kernels"]))


def kernel_labels(top: pd.DataFrame) -> dict[str, str]:
    """A short label per kernel name: its class and a number, the kernel with the most time in all runs first."""
    times = top.groupby(["kernel", "class"], sort=False)["gpu_time_ms"].sum().reset_index()
    times = times.sort_values(["gpu_time_ms", "kernel"], ascending=[False, True])
    numbers = times.groupby("class").cumcount() + 1
    return {name: f"{cls} {number}" for name, cls, number in zip(times["kernel"], times["class"], numbers, strict=True)}


def where(row) -> str:
    """The model and context of a row, in Markdown: "small at context 512"."""
    return f"{escaped(row.model)} at context {row.context_length}"


def places(rows: pd.DataFrame, most: int = 4) -> str:
    """The configurations of these rows in words, so many by name and the others counted."""
    names = list(dict.fromkeys(where(row) for row in rows.itertuples()))
    if len(names) <= most:
        return listed(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def listed(words: list[str]) -> str:
    """Words as an English list: "a, b and c"."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1] if words else ""


def of_all(some: int, every: int, noun: str = "configuration") -> str:
    """How many of how many: "all 20 configurations", "both configurations", "3 of 20 configurations"."""
    if every == 1:
        return f"the one {noun}" if some else f"not the one {noun}"
    if every == some == 2:
        return f"both {noun}s"
    return f"all {every} {noun}s" if some == every else f"{some} of {every} {noun}s"


def extremes(rows: pd.DataFrame, column: str, text: Callable[[object], str]) -> str:
    """The smallest and the largest row in words, each with its place: "3.1 ms (small at …) to 27 ms (large at …)"."""
    present = rows[rows[column].map(known)]
    low, high = present.loc[present[column].astype(float).idxmin()], present.loc[present[column].astype(float).idxmax()]
    if len(present) == 1:
        return f"{text(low)} ({where(low)})"
    if text(low) == text(high):
        return text(low)
    return f"{text(low)} ({where(low)}) to {text(high)} ({where(high)})"


def stand_in(of: Measured) -> list[str]:
    """That the forward pass of another mode stands in, where the grid has no run of the forward pass alone."""
    if of.inference_mode == "forward":
        return []
    return [f"The grid has no run of the forward pass alone: the one inside the {MODES[of.inference_mode]} stands in."]
