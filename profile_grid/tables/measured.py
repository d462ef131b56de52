"""What one machine measured, as the sentences, tables and figures of a question read it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pandas as pd

from profile_grid.markdown import escaped
from profile_grid.study.dimensions import FULLEST_FIRST, MODES
from profile_grid.tables.machines import Machine
from profile_grid.tables.names import FORWARD

SHORT_NAME = re.compile(r"[\w:.]{1,30}", re.ASCII)  # needs neither a label nor a legend


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
        present = set(self.runs["mode"])
        return next((mode for mode in FULLEST_FIRST if mode != FORWARD and mode in present), None)

    @property
    def has_kernels(self) -> bool:
        return not self.tables["class_shares"].empty

    def inference(self, name: str) -> pd.DataFrame:
        """The rows of a summary table that belong to the runs of the inference mode."""
        return self.mode(name, self.inference_mode)

    def mode(self, name: str, mode: str) -> pd.DataFrame:
        """The rows of a summary table that belong to the runs of this mode."""
        table = self.tables[name]
        return table[table["mode"] == mode]

    def label(self, kernel: str) -> str:
        """What stands for a kernel in tables and sentences, in Markdown: its name if that is short, else its label."""
        return f"`{kernel}`" if SHORT_NAME.fullmatch(kernel) else f"**{escaped(self.labels[kernel])}**"


def measured_on(machine: Machine, names: list[str], runs: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> Measured:
    """The part of all tables that these runs of one machine have."""
    own = {name: table[table["run"].isin(names)] for name, table in tables.items()}
    return Measured(machine, runs[runs["run"].isin(names)], own, kernel_labels(own["top_kernels"]))


def kernel_labels(top: pd.DataFrame) -> dict[str, str]:
    """A short label per kernel name: its class and a number, the kernel with the most time in all runs first."""
    times = top.groupby(["kernel", "class"], sort=False)["gpu_time_ms"].sum().reset_index()
    times = times.sort_values(["gpu_time_ms", "kernel"], ascending=[False, True])
    numbers = times.groupby("class").cumcount() + 1
    return {name: f"{cls} {number}" for name, cls, number in zip(times["kernel"], times["class"], numbers, strict=True)}
