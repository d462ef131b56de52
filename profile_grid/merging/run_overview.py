"""The table of runs: shape, status of each stage, machine, and notes for the reader."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from cs336_model.arithmetic.flops import shape_of
from profile_grid.quantities import counted, memory, percent
from profile_grid.results.load_runs import MeasuredRun
from profile_grid.results.results import OUT_OF_MEMORY, OutOfMemory, ProgramResult
from profile_grid.stages.timing.tables import accuracy_notes
from profile_grid.study.dimensions import LEADING, MACHINE_DIMENSIONS, OF_OPERATORS
from profile_grid.study.stages import CAPTURE, STAGES
from profile_grid.study.table_spec import TEXT, Column, TableSpec, column_of, columns

LOSS_TOLERANCE = 1e-3  # relative; atomic additions in the backward pass change the last digits from process to process
STATUSES = (
    "complete, out_of_memory, unsupported (this machine cannot), wrong or failed (a student's code), stopped (at the"
    " time limit), incomplete (to be measured again), missing (no result), or not_asked (stage not requested)"
)
CAPTURE_FACTS = ("backend", "nsys")
MACHINE_FACTS = tuple(dimension for dimension in MACHINE_DIMENSIONS if dimension.key not in CAPTURE_FACTS)
SIZES = ("d_model", "d_ff", "num_layers", "num_heads")


def runs_table(runs: list[MeasuredRun]) -> pd.DataFrame:
    """One row per run."""
    return pd.DataFrame([_row(run) for run in runs]).convert_dtypes()


def _row(run: MeasuredRun) -> dict:
    program, capture = _first_program(run), run.results.get(CAPTURE.name)
    machine = program.machine
    sizes, memory_facts, compiled = _sizes(program.spec), program.memory, program.compilation
    programs = [result.program for result in run.results.values()]
    oom = next((p.out_of_memory for p in programs if p and p.out_of_memory), None)
    return run.leading | {
        **{dimension.key: run.entry.get(dimension.key) for dimension in OF_OPERATORS},
        **sizes,
        "vocab_size": program.spec.get("vocab_size"),
        "parameters": program.parameters,
        **{stage.status_column: run.status(stage.name) for stage in STAGES},
        "reason": _reason(run, oom),
        "oom_during": oom and oom.during,
        "oom_requested_bytes": oom and oom.requested_bytes,
        "oom_free_bytes": oom and oom.free_bytes,
        "oom_total_bytes": oom and oom.total_bytes,
        "backend": capture and capture.facts["backend"],
        **{dimension.key: getattr(machine, dimension.key) for dimension in MACHINE_FACTS},
        "nsys": capture and capture.facts["nsys"],
        "steps_timed": len(program.step_seconds),
        "processes_timed": len(run.timings),
        "steps_captured": captured_steps(run),
        "steps_warmed": len(program.warmup_seconds),
        "peak_allocated_bytes": memory_facts.peak_allocated_bytes,
        "peak_reserved_bytes": memory_facts.peak_reserved_bytes,
        "device_total_bytes": memory_facts.device_total_bytes,
        "forward_flops": (program.flops or {}).get("forward"),
        "loss": program.losses[-1] if program.losses else None,
        "sm_clock_mhz": machine.sm_clock_mhz,
        "graphs": compiled and compiled.graphs,
        "graph_breaks": compiled and compiled.graph_breaks,
        "note": "; ".join(_notes(run)) or None,
        **{f"{stage.name}_started_utc": _started_utc(run, stage.name) for stage in STAGES},
    }


def _first_program(run: MeasuredRun) -> ProgramResult:
    """The result of the program of a run's first stage: the timing, or an operator alone."""
    return next(iter(run.results.values())).program


def _reason(run: MeasuredRun, oom: OutOfMemory | None) -> str | None:
    """Why stages have no results, each reason once; several reasons start with the names of their stages."""
    stages: dict[str, list[str]] = {}
    for name, status in run.statuses.items():
        stage_oom = oom if status.status == OUT_OF_MEMORY else None
        if reason := status.reason or (stage_oom and out_of_memory_in_words(stage_oom)):
            stages.setdefault(reason, []).append(name)
    if len(stages) > 1:
        prefixes = {reason: f"{' and '.join(names)}: " for reason, names in stages.items()}
        return "; ".join(
            f"{'' if reason.startswith(prefix) else prefix}{reason}" for reason, prefix in prefixes.items()
        )
    return next(iter(stages), None)


def _sizes(spec: dict) -> dict[str, int | None]:
    """The sizes of the model with the names of this project; None for others."""
    shape = shape_of(spec)
    sizes = vars(shape) if shape else spec.get("sizes", {})
    return {name: sizes[name] if isinstance(sizes.get(name), int) else None for name in SIZES}


def _started_utc(run: MeasuredRun, stage: str) -> str | None:
    return run.results[stage].started_utc if stage in run.results else None


def out_of_memory_in_words(oom: OutOfMemory) -> str:
    """When memory ran out, the requested and the free bytes. The message of the program, which may have anything, stays
    in its result."""
    request = "" if oom.requested_bytes is None else f": {memory(oom.requested_bytes)} were requested"
    free = "" if oom.total_bytes is None else f", {memory(oom.free_bytes)} of {memory(oom.total_bytes)} were free"
    return f"memory ran out during {oom.during}{request}{free}"


def captured_steps(run: MeasuredRun) -> int:
    """The steps in the run's complete capture, as configured; 0 if it is incomplete."""
    complete = run.complete(CAPTURE.name)
    return run.results[CAPTURE.name].specification["program"]["measured_steps"] if complete else 0


def _notes(run: MeasuredRun) -> list[str]:
    """Everything that makes this run's numbers hard to compare."""
    before = [f"{stage}: {note}" for stage, result in run.results.items() for note in result.notes]
    warnings = [warning for status in run.statuses.values() for warning in status.warnings]
    return [*before, *_machine_notes(run), *_compiler_notes(run), *accuracy_notes(run), *_loss_notes(run), *warnings]


def _machine_notes(run: MeasuredRun) -> Iterator[str]:
    first = next(iter(run.results.values()))
    machine = first.program.machine
    if first.neighbours:
        yield "measurements on other GPUs of the host ran at the same time, which may slow launches"
    if machine.other_processes:
        yield f"{counted(machine.other_processes, 'other process', 'other processes')} on the GPU while it was timed"
    if machine.throttle_reasons:
        yield f"the GPU lowered its clocks: {', '.join(machine.throttle_reasons)}"


def _compiler_notes(run: MeasuredRun) -> Iterator[str]:
    """A note if a compiled program is not a single graph, or was compiled again in timed steps."""
    compiled = _first_program(run).compilation
    if compiled and compiled.graph_breaks:
        yield f"the compiled model is broken into parts by {counted(compiled.graph_breaks, 'graph break')}"
    if compiled and compiled.graphs_later:
        were = "was" if compiled.graphs_later == 1 else "were"
        graphs = counted(compiled.graphs_later, "graph")
        yield f"{graphs} {were} compiled after the first step, while times were measured"


def _loss_notes(run: MeasuredRun) -> Iterator[str]:
    """A note if two stages have different losses, so measured different work. Counters use a model with fewer layers,
    whose losses differ."""
    programs = {stage: result.program for stage, result in run.results.items() if hasattr(result.program, "losses")}
    first = next(iter(programs), None)
    for name, program in list(programs.items())[1:]:
        reference = programs[first]
        is_comparable = program.spec["sizes"] == reference.spec["sizes"]
        count = min(len(reference.losses), len(program.losses)) if is_comparable else 0
        expected, losses = reference.losses[:count], program.losses[:count]
        if not np.allclose(expected, losses, rtol=LOSS_TOLERANCE):
            largest = np.abs(np.array(losses) / np.array(expected) - 1).max()
            yield f"the training losses of {first} and {name} differ by up to {percent(largest)}"


RUNS = TableSpec(
    "runs",
    "One row per run of the grid",
    columns(
        (
            replace(column_of(dimension), meaning=f"{dimension.meaning}, of attention alone")
            for dimension in OF_OPERATORS
        ),
        """
    d_model | int | | width of the residual stream; it and the next three are empty if sizes have other names
    d_ff | int | | width inside the feed-forward
    num_layers | int | | Transformer blocks
    num_heads | int | | attention heads per block
    vocab_size | int | tokens | size of the vocabulary
    parameters | int | | trained parameters
""",
        (Column(stage.status_column, TEXT, "", f"{STATUSES}: {stage.meaning}") for stage in STAGES),
        """
    reason | text | | why a run is not complete
    oom_during | text | | what was running when memory ran out
    oom_requested_bytes | int | B | size of the failed allocation
    oom_free_bytes | int | B | free memory of the GPU then
    oom_total_bytes | int | B | memory of the GPU, as read then
    backend | text | | profiler: nsys, or torch (PyTorch's own)
""",
        (column_of(fact) for fact in MACHINE_FACTS if fact.key not in LEADING),  # a dimension may have the same name
        """
    nsys | text | | version of Nsight Systems
    steps_timed | int | | measured steps of the timing, in each process
    processes_timed | int | | processes that timed the run completely
    steps_captured | int | | measured steps in the capture
    steps_warmed | int | | warm-up steps of the timing whose times were kept
    peak_allocated_bytes | int | B | largest sum of live tensors on the GPU while timed
    peak_reserved_bytes | int | B | largest amount that PyTorch's allocator held while timed
    device_total_bytes | int | B | memory of the GPU
    forward_flops | int | FLOP | operations of matrix multiplies in one forward pass, from the shapes
    loss | float | nat | loss of the last timed step
    sm_clock_mhz | int | MHz | SM clock of the GPU after the timing
    graphs | int | | graphs of torch.compile; empty if nothing is compiled
    graph_breaks | int | | breaks between them
    note | text | | notes about these numbers
""",
        (Column(f"{stage.name}_started_utc", TEXT, "", f"start of {stage.meaning}") for stage in STAGES),
    ),
)
TABLES = (RUNS,)
