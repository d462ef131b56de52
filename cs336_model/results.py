"""The results of measured programs: typed, one class for each stage, as JSON. Imports no torch."""

import os
from pathlib import Path
from typing import Any, Literal

import msgspec

Status = Literal["complete", "out_of_memory", "unsupported", "non_finite", "stopped"]


class BadResult(Exception):
    """A file that is not a result of its stage. The message is one line, with the command that measures again."""


class Machine(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a reader must know to judge the times; None for what is unknown on this host."""

    device: str  # "cuda" or "cpu"
    device_name: str
    driver: str | None = None  # as in `key`: workflow/scripts/measure.py adds it
    cuda: str | None = None
    torch: str
    python: str
    cpu_name: str
    cores: int
    threads: int


class OutOfMemory(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """When memory was missing, how much was asked for, and how much the device had; None where unknown."""

    during: str
    requested_bytes: int | None = None
    total_bytes: int | None = None


class Result(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What the results of all stages have. `workflow/scripts/measure.py` adds `key` and `started_utc`."""

    status: Status
    reason: str | None = None  # one line; None if complete
    key: dict[str, Any] = {}  # spec, code, torch, nsys, driver and gpu: what the numbers depend on
    out_of_memory: OutOfMemory | None = None
    machine: Machine | None = None
    started_utc: str | None = None


class Timing(Result, kw_only=True):
    """Seconds of every step and of its phases."""

    step_seconds: list[float] = []  # with the wait for the device at the end of each step
    phase_seconds: dict[str, list[float]] = {}  # on a GPU between CUDA events, on a CPU by default_timer
    warmup_seconds: list[float] = []
    warmup_phase_seconds: dict[str, list[float]] = {}
    without_communication_seconds: list[float] = []  # of steps whose gradients stay where they are
    losses: list[float] = []  # of all steps with a loss, warm-up included
    compile_seconds: float | None = None  # of the first step, in which the model was compiled
    parameters: int | None = None
    forward_flops: int | None = None  # of the matrix products of a forward pass
    peak_allocated_bytes: int | None = None
    graph_breaks: int | None = None  # between compiled graphs; None if nothing is compiled


class Capture(Timing, kw_only=True):
    profiler: Literal["nsys", "torch"] | None = None
    nsys: str | None = None  # its version
    ranks: int = 1  # number of captures


class Memory(Timing, kw_only=True):
    """What the allocator counted while every allocation was recorded; the allocations are in memory_history.json.gz."""

    requested_peak_bytes: int | None = None  # of the sizes of tensors
    allocated_peak_bytes: int | None = None  # rounded up to blocks; None on a CPU, as the next two
    reserved_peak_bytes: int | None = None  # held of the device
    driver_used_bytes: int | None = None  # by all processes of the device after the last step, from the driver


class Window(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What passed between two readings of a counter of energy."""

    kind: Literal["steps", "idle"]
    seconds: float
    microjoules: int
    steps: int  # 0 if idle


class Energy(Timing, kw_only=True):
    """Joules of windows of steps, and of windows in which nothing runs."""

    counter: str | None = None  # whose energy it counts
    windows: list[Window] = []


class Counters(Timing, kw_only=True):
    """What a program wrote under ncu; the counters themselves are in a file of their own."""

    ncu: str | None = None  # its version


class Cell(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Attention alone at one context length; without times if its status says why."""

    context_length: int
    status: Literal["complete", "out_of_memory", "unsupported", "non_finite", "failed"]  # failed: a user's function
    reason: str | None = None
    out_of_memory: OutOfMemory | None = None
    forward_seconds: list[float] = []  # of each pass, on a GPU between CUDA events
    backward_seconds: list[float] = []
    compile_seconds: float | None = None  # of the first forward and backward pass
    memory_before_backward_bytes: int | None = None
    peak_bytes: int | None = None
    output_error: float | None = None  # against fp64
    gradient_error: float | None = None


class Attention(Result, kw_only=True):
    cells: list[Cell] = []


STAGES = {"timing": Timing, "capture": Capture, "memory": Memory, "energy": Energy, "counters": Counters,
          "attention": Attention}  # fmt: skip


def read_result(path: Path) -> Result:
    """The result in a file whose name says its stage (timing.json). Raises BadResult for another version or damage."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=STAGES[path.stem])
    except (OSError, msgspec.DecodeError) as error:
        raise BadResult(f"{path}: {error}; measure it again: snakemake --forcerun {path}") from None


def write_result(result: Result, path: Path) -> None:
    """Writes the result to another file and renames it, so that nobody reads a part of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    partial.replace(path)
