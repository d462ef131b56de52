"""The longest context or the largest batch with which a run fits: `python -m workflow.scripts.largest --run NAME`.

Tries the value of the run, then searches by bisection from the one that the shapes predict, with a separate process for
each attempt. The limit is --memory-gib, which a CPU needs; without it, a value that does not fit exhausts the memory of
the GPU. If the grid has question (i), the next `snakemake` shows the result there.
"""

import argparse
import json
import tempfile
from pathlib import Path

from cs336_model.arithmetic.flops import shape_of
from cs336_model.arithmetic.memory import NON_TENSOR_BYTES, estimated_peak_bytes
from profile_grid.errors import OutsideError
from profile_grid.files import write_json
from profile_grid.host.leases.lease_server import leases_for
from profile_grid.host.processes.job import Job
from profile_grid.host.progress import say
from profile_grid.largest.fitting import (
    SEARCHABLE_DIMENSIONS,
    FitResult,
    file_name,
    largest_fitting,
    try_fit,
    with_value,
)
from profile_grid.quantities import GIBIBYTE, memory
from profile_grid.study.stages import TIMING
from workflow.command import run_command

MULTIPLES = dict(zip(SEARCHABLE_DIMENSIONS, (64, 1), strict=True))  # of tokens, of sequences: only these are tried


def command_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True, help="a run of the grid; only one of its dimensions is changed")
    parser.add_argument(
        "--dimension", choices=list(MULTIPLES), default="context_length", help="default: context_length"
    )
    parser.add_argument("--multiple-of", type=int, help="only try multiples of this (default: 64 tokens, 1 sequence)")
    parser.add_argument("--memory-gib", type=float, help="limit of memory, GiB (default: all memory of the GPU)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of grid.json (default: results)")
    parser.add_argument("--time-limit-s", type=float, default=900, help="limit of an attempt, s (default: 900)")
    return parser


def main() -> None:
    arguments = command_parser().parse_args()
    entry = entry_of(arguments.results / "grid.json", arguments.run)
    result = bisect_largest(entry, arguments)
    write_json(arguments.results / "largest" / file_name(arguments.run, arguments.dimension), result)
    predicted = "not known" if result["predicted"] is None else result["predicted"]
    say(f"{arguments.run}: largest {arguments.dimension} that fits is {result['largest']}; by the shapes {predicted}")


def entry_of(plan_path: Path, run: str) -> dict:
    """The run's entry in the plan of the grid; raises OutsideError unless it has one and is timed."""
    if not plan_path.exists():
        raise OutsideError(f"{plan_path} is missing; make it: snakemake --cores 1 {plan_path}")
    planned = json.loads(plan_path.read_text())["runs"]
    entries = {entry["run"]: entry for entry in planned if TIMING.name in entry["specifications"]}
    if run not in entries:
        raise OutsideError(f"--run: {run!r} is not a run of a model in the grid; runs: {', '.join(list(entries)[:5])}")
    return entries[run]


def bisect_largest(entry: dict, arguments: argparse.Namespace) -> dict:
    """The content of the result's file: the largest value that fits, the one that the shapes predict, all tries."""
    dimension, multiple = arguments.dimension, arguments.multiple_of or MULTIPLES[arguments.dimension]
    limit_bytes = None if arguments.memory_gib is None else int(arguments.memory_gib * GIBIBYTE)
    specification, attempts = entry["specifications"][TIMING.name], {}

    def fits(factor: int) -> bool:
        value = factor * multiple
        if value not in attempts:
            attempt = try_value(with_value(specification, dimension, value), limit_bytes, arguments)
            attempts[value] = attempt
            peak = f", {memory(attempt.peak_bytes)}" if attempt.peak_bytes else ""
            say(f"{dimension} {value} {'fits' if attempt.fits else 'does not fit'}{peak}")
        return attempts[value].fits

    start = max(entry[dimension] // multiple, 1)
    fits(start)  # its attempt says how much memory the device has
    total_bytes = attempts[start * multiple].device_total_bytes  # None on a CPU
    available_bytes = (limit_bytes or total_bytes) - (NON_TENSOR_BYTES if total_bytes else 0)
    predicted = predicted_largest(specification["program"], dimension, available_bytes)
    largest = largest_fitting(fits, start if predicted is None else max(predicted // multiple, 1)) * multiple
    return {
        "run": entry["run"], "dimension": dimension, "multiple_of": multiple,
        "limit_bytes": limit_bytes or total_bytes, "largest": largest, "predicted": predicted,
        "specification": specification,
        "tries": [{"value": value, **vars(attempt)} for value, attempt in sorted(attempts.items())],
    }  # fmt: skip


def try_value(specification: dict, limit_bytes: int | None, arguments: argparse.Namespace) -> FitResult:
    """The result of one process with this specification, which leases its GPU."""
    program, log = specification["program"], Path("logs/largest") / f"{arguments.run}.log"
    with leases_for(program["device"], program["run"], say=say) as leases, tempfile.TemporaryDirectory() as scratch:
        job = Job(specification, Path(scratch), Path(scratch), log, arguments.time_limit_s, leases)
        return try_fit(job, limit_bytes)


def predicted_largest(program: dict, dimension: str, available_bytes: int) -> int | None:
    """The largest value whose estimated peak fits into the available bytes; None for other people's models."""
    if shape_of(program) is None:
        return None

    def fits(value: int) -> bool:
        dimensions = program["dimensions"] | {dimension: value}
        shape = shape_of(program | {"dimensions": dimensions})
        return estimated_peak_bytes(shape, dimensions["mode"], dimensions) <= available_bytes

    return largest_fitting(fits, program["dimensions"][dimension])


if __name__ == "__main__":
    run_command(main)
