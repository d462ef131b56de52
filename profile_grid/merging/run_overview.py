"""The table of runs: sizes, status of each stage, machine, and notes for the reader."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from cs336_model.arithmetic.flops import shape_of
from profile_grid.quantities import counted, memory, percent
from profile_grid.results.load_runs import MeasuredRun
from profile_grid.results.results import OUT_OF_MEMORY, OutOfMemory, ProgramResult
from profile_grid.stages.timing.tables import accuracy_notes
from profile_grid.study.dimensions import LEADING, MACHINE_DIMENSIONS, OPERATOR_DIMENSIONS
from profile_grid.study.stages import CAPTURE, STAGES
from profile_grid.study.table_spec import TEXT, Column, TableSpec, column_of, columns

LOSS_TOLERANCE = 1e-3  # relative; atomic additions in the backward pass change the last digits from process to process
STATUS_MEANINGS = (
    "complete, out_of_memory, unsupported (this machine cannot), stopped (at the time limit), incomplete (to be"
    " measured again), missing (no result), or not_asked (stage not requested)"
)
# of every program; backend and nsys are facts of a capture only
MACHINE_FACTS = tuple(dimension for dimension in MACHINE_DIMENSIONS if dimension.key not in ("backend", "nsys"))
SIZES = ("d_model", "d_ff", "num_layers", "num_heads")


def runs_table(runs: list[MeasuredRun]) -> pd.DataFrame:
    """One row per run."""
    return pd.DataFrame([_row(run) for run in runs]).convert_dtypes()


def _row(run: MeasuredRun) -> dict:
    program, capture = _first_program(run), run.results.get(CAPTURE.name)
    memory_facts, compilation = program.memory, program.compilation
    programs = [result.program for result in run.results.values() if result.program]
    oom = next((program.out_of_memory for program in programs if program.out_of_memory), None)
    return run.leading | {
        **{dimension.key: run.entry.get(dimension.key) for dimension in OPERATOR_DIMENSIONS},
        **_sizes(program.spec),
        "vocab_size": program.spec.get("vocab_size"),
        "parameters": program.parameters,
        **{stage.status_column: run.status(stage.name) for stage in STAGES},
        "reason": _reason(run, oom),
        "oom_during": oom and oom.during,
        "oom_requested_bytes": oom and oom.requested_bytes,
        "oom_free_bytes": oom and oom.free_bytes,
        "oom_total_bytes": oom and oom.total_bytes,
        "backend": capture and capture.facts["backend"],
        **{dimension.key: getattr(program.machine, dimension.key) for dimension in MACHINE_FACTS},
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
        "sm_clock_mhz": program.machine.sm_clock_mhz,
        "graphs": compilation and compilation.graphs,
        "graph_breaks": compilation and compilation.graph_breaks,
        "note": "; ".join(_notes(run)) or None,
        **dict.fromkeys(f"{stage.name}_started_utc" for stage in STAGES),  # None if the stage was not requested
        **{f"{stage}_started_utc": result.started_utc for stage, result in run.results.items()},
    }


def _first_program(run: MeasuredRun) -> ProgramResult:
    """The result of the program of a run's first stage, which is the timing, or the measurement of an operator."""
    return next(iter(run.results.values())).program


def _reason(run: MeasuredRun, oom: OutOfMemory | None) -> str | None:
    """Why stages have no results, each reason once. If there are several, each begins with the names of its stages."""
    stages_by_reason: dict[str, list[str]] = {}
    for name, status in run.statuses.items():
        reason = status.reason
        if not reason and oom and status.status == OUT_OF_MEMORY:
            reason = out_of_memory_in_words(oom)
        if reason:
            stages_by_reason.setdefault(reason, []).append(name)
    if len(stages_by_reason) < 2:
        return next(iter(stages_by_reason), None)
    prefixes = {reason: f"{' and '.join(names)}: " for reason, names in stages_by_reason.items()}
    # a reason may begin with the name of its stage already: "energy: no counter"
    return "; ".join(reason if reason.startswith(prefix) else prefix + reason for reason, prefix in prefixes.items())


def _sizes(spec: dict) -> dict[str, int | None]:
    """The values of SIZES; None for those that the model does not have under this name."""
    shape = shape_of(spec)
    sizes = vars(shape) if shape else spec.get("sizes", {})
    return {name: sizes[name] if isinstance(sizes.get(name), int) else None for name in SIZES}


def out_of_memory_in_words(oom: OutOfMemory) -> str:
    """What was running when memory ran out, and the bytes; without the program's message, which may be any text."""
    request = "" if oom.requested_bytes is None else f": {memory(oom.requested_bytes)} were requested"
    free = "" if oom.total_bytes is None else f", {memory(oom.free_bytes)} of {memory(oom.total_bytes)} were free"
    return f"memory ran out during {oom.during}{request}{free}"


def captured_steps(run: MeasuredRun) -> int:
    """The steps in the run's complete capture, as configured; 0 if it is incomplete."""
    is_complete = run.is_complete(CAPTURE.name)
    return run.results[CAPTURE.name].specification["program"]["measured_steps"] if is_complete else 0


def _notes(run: MeasuredRun) -> list[str]:
    """Everything that makes this run's numbers hard to compare."""
    notes = [f"{stage}: {note}" for stage, result in run.results.items() for note in result.notes]
    warnings = [warning for status in run.statuses.values() for warning in status.warnings]
    return [*notes, *_machine_notes(run), *_compiler_notes(run), *accuracy_notes(run), *_loss_notes(run), *warnings]


def _machine_notes(run: MeasuredRun) -> Iterator[str]:
    """Notes on the first stage's machine while it measured."""
    result = next(iter(run.results.values()))
    machine = result.program.machine
    if result.neighbours:
        yield "measurements on other GPUs of the host ran at the same time, which may slow launches"
    if machine.other_processes:
        yield f"{counted(machine.other_processes, 'other process', 'other processes')} on the GPU while it was timed"
    if machine.throttle_reasons:
        yield f"the GPU lowered its clocks: {', '.join(machine.throttle_reasons)}"


def _compiler_notes(run: MeasuredRun) -> Iterator[str]:
    """A note if a compiled program is not a single graph, or was compiled again in timed steps."""
    compilation = _first_program(run).compilation
    if compilation and compilation.graph_breaks:
        yield f"the compiled model is broken into parts by {counted(compilation.graph_breaks, 'graph break')}"
    if compilation and compilation.graphs_later:
        were = "was" if compilation.graphs_later == 1 else "were"
        graphs = counted(compilation.graphs_later, "graph")
        yield f"{graphs} {were} compiled after the first step, while times were measured"


def _loss_notes(run: MeasuredRun) -> Iterator[str]:
    """A note on each stage whose losses differ from those of the first stage, so that it measured other work. Counters
    are measured with fewer layers, so their losses are not compared."""
    programs = {stage: result.program for stage, result in run.results.items() if result.program}
    if not programs:
        return
    (first_stage, first_program), *others = programs.items()
    for stage, program in others:
        if program.spec["sizes"] != first_program.spec["sizes"]:
            continue
        count = min(len(first_program.losses), len(program.losses))
        expected, losses = first_program.losses[:count], program.losses[:count]
        if not np.allclose(expected, losses, rtol=LOSS_TOLERANCE):
            difference = np.abs(np.array(losses) / np.array(expected) - 1).max()
            yield f"the training losses of {first_stage} and {stage} differ by up to {percent(difference)}"


RUNS = TableSpec(
    "runs",
    "One row per run of the grid",
    columns(
        (
            replace(column_of(dimension), meaning=f"{dimension.meaning}, of attention alone")
            for dimension in OPERATOR_DIMENSIONS
        ),
        """
    d_model | int | | width of the residual stream; it and the next three are empty if sizes have other names
    d_ff | int | | width inside the feed-forward
    num_layers | int | | Transformer blocks
    num_heads | int | | attention heads per block
    vocab_size | int | tokens | size of the vocabulary
    parameters | int | | trained parameters
""",
        (Column(stage.status_column, TEXT, "", f"{STATUS_MEANINGS}: {stage.meaning}") for stage in STAGES),
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
