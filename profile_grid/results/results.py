"""The results of a run, read into dataclasses: the JSON of every stage, and the status of its tables.

A file that is missing, damaged, of another version or impossible raises an error of one line: the file, what is wrong
in it, and the command that makes it again.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cs336_model.program.without_times import STOPPED, UNSUPPORTED
from profile_grid.errors import OutsideError
from profile_grid.freshness.environment import RecordedEnvironment
from profile_grid.freshness.versions import MachineVersions
from profile_grid.typed_json import Mismatch, Parsed, parse_as

FORMAT = 7  # of the JSON of a stage's result; increased when a field changes its meaning
COMPLETE, OUT_OF_MEMORY, INCOMPLETE = "complete", "out_of_memory", "incomplete"
FINAL_STATUSES = (COMPLETE, OUT_OF_MEMORY, UNSUPPORTED, STOPPED)  # measuring again gives the same
STATUSES = (*FINAL_STATUSES, INCOMPLETE)
STOPPED_AT_S = "stopped_at_s"  # a fact of a stopped result: the time limit, whose increase makes it stale


class BadResult(OutsideError):
    """A result file cannot be used; the message is one line: the file, the `problem`, what to do."""

    def __init__(self, path: Path, problem: str):
        self.problem = problem
        super().__init__(f"{path}: {problem}; make it again: snakemake --cores 1 all --forcerun {path}")


@dataclass(frozen=True)
class MachineFacts:
    """Hardware and software of the machine that ran a program; None if unknown."""

    device: str
    device_name: str
    gpu_uuid_sha256: str | None
    driver: str | None
    cuda: str | None
    torch: str
    python: str
    cpu_name: str
    cores: int
    threads: int
    sm_clock_mhz: int | None
    throttle_reasons: list[str] | None
    other_processes: int | None


@dataclass(frozen=True)
class MemoryFacts:
    """Bytes of the device's memory; None on a processor."""

    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    device_total_bytes: int | None


@dataclass(frozen=True)
class OutOfMemory:
    """What a program was doing when memory ran out, the size of the request that failed, and the memory then."""

    during: str
    requested_bytes: int | None
    free_bytes: int | None
    total_bytes: int | None


@dataclass(frozen=True)
class Compilation:
    """What torch.compile did in a run."""

    graphs: int  # that were compiled
    graphs_later: int  # of these, after the first step
    graph_breaks: int  # between them


@dataclass(frozen=True)
class Accuracy:
    """Relative errors of a first step against one in fp64, or the reason why there are none."""

    reason: str | None
    loss_error: float | None
    logits_error: float | None
    gradient_norm_error: float | None


@dataclass(frozen=True)
class ProgramResult:
    """What the measured program wrote: see cs336_model/program/benchmark.py. Times are in seconds. If there are none,
    `reason` or `out_of_memory` says why."""

    status: str
    spec: dict[str, Any]
    out_of_memory: OutOfMemory | None
    reason: str | None
    compilation: Compilation | None
    accuracy: Accuracy | None
    step_seconds: list[float]
    phase_seconds: dict[str, list[float]]
    warmup_seconds: list[float]
    warmup_phase_seconds: dict[str, list[float]]
    losses: list[float]
    memory: MemoryFacts
    parameters: int | None
    flops: dict[str, int | None] | None
    machine: MachineFacts
    cost_seconds: dict[str, float]
    loaded: dict[str, Any]  # as in ProgramOrigin
    loaded_distributions: dict[str, str]


@dataclass(frozen=True)
class Checkout:
    """The commit that was measured, and whether the tree was clean; None outside a git repository."""

    git_commit: str | None
    git_clean: bool | None


@dataclass(frozen=True)
class FileIdentity:
    """The size and digest by which a file next to a result is identified."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class StageResult:
    """The result of one stage of one run: the content of timing.json, capture.json, ..."""

    format: int
    status: str
    reason: str | None  # why there are no numbers
    specification: dict[str, Any]
    sources: str  # the digest of what measured it
    program: ProgramResult | None  # None if the program was ended before it wrote its result
    facts: dict[str, Any]  # that only results of this stage have, such as the version of nsys
    environment: RecordedEnvironment  # of the program
    files: dict[str, FileIdentity]  # the files next to it, by name
    seconds: dict[str, float]  # of parts of the job, by name, and of "all"
    waited_s: float  # for leases
    neighbours: int  # the most other GPUs of the host that were measured on at the same time
    notes: list[str]
    started_utc: str
    git: Checkout


@dataclass(frozen=True)
class StageStatus:
    """Whether a stage of a run has numbers or, if it has tables of a run, whether these could be made."""

    status: str
    reason: str | None  # why there are none
    warnings: list[str]


@dataclass(frozen=True)
class ProgramOrigin:
    """The part of a ProgramResult that says what it was made from."""

    loaded: dict[str, Any]  # code; profile_grid.freshness.loaded_code checks its types, once for thousands of results
    loaded_distributions: dict[str, str]  # versions of installed packages that the measured code refers to
    machine: MachineVersions


@dataclass(frozen=True)
class Origin:
    """The part of a StageResult that says what it was made from. Snakemake reads it of every run whenever it starts."""

    format: int
    specification: dict[str, Any]
    sources: str
    program: ProgramOrigin | None
    facts: dict[str, Any]
    environment: RecordedEnvironment
    files: dict[str, FileIdentity]


def read_result(path: Path) -> StageResult:
    """The result of a stage; raises BadResult."""
    return read_as(path, StageResult)


def read_origin(path: Path) -> Origin:
    """The origin of the result of a stage; raises BadResult."""
    return read_as(path, Origin)


def read_status(path: Path) -> StageStatus:
    """Whether the tables of a run are complete; raises BadResult."""
    return read_as(path, StageStatus)


def read_as(path: Path, kind: type[Parsed]) -> Parsed:
    """The file as a dataclass of this kind, every value checked against its type; raises BadResult."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(values, dict) and values.get("format", FORMAT) != FORMAT:
            raise Mismatch(f"it has format {values['format']}, this version of the project reads {FORMAT}")
        result = parse_as(kind, values)
        if isinstance(result, (StageResult, StageStatus)):
            _require_possible(result)
        return result
    except FileNotFoundError:
        raise BadResult(path, "it is missing") from None
    except Mismatch as error:
        raise BadResult(path, str(error)) from error
    except (ValueError, RecursionError) as error:
        raise BadResult(path, f"it is damaged ({str(error).splitlines()[0]})") from error


def _require_possible(result: StageResult | StageStatus) -> None:
    if result.status not in STATUSES:
        raise Mismatch(f"status is {result.status!r}, which is not one of {', '.join(STATUSES)}")
    program = getattr(result, "program", None)
    if program is not None and program.status == COMPLETE:
        _require_times(program)
    if program is None and result.status == COMPLETE and not isinstance(result, StageStatus):
        raise Mismatch("status is complete, and program is null")


def _require_times(program: ProgramResult) -> None:
    """Raises Mismatch unless there are as many times as steps, each of them finite and above zero."""
    # the program of an operator has neither key, and no times of steps
    warmup_steps, measured_steps = (program.spec.get(key, 0) for key in ("warmup_steps", "measured_steps"))
    _require_step_times(measured_steps, "measured steps", program.step_seconds, program.phase_seconds)
    _require_step_times(warmup_steps, "warm-up steps", program.warmup_seconds, program.warmup_phase_seconds)


def _require_step_times(count: int, noun: str, steps: list[float], phases: dict[str, list[float]]) -> None:
    for name, seconds in [("step", steps), *((phase, times) for phase, times in phases.items() if times)]:
        if len(seconds) != count:
            raise Mismatch(f"program has {len(seconds)} times of {name} and {count} {noun}")
        if wrong := [value for value in seconds if not (math.isfinite(value) and value > 0)]:
            raise Mismatch(f"program has {wrong[0]} s as a time of {name}")
