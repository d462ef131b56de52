"""The longest context or the largest batch with which a run fits: `python -m workflow.scripts.largest --run NAME`.

Searches by bisection, starting at the value that the shapes predict, with a separate process for each attempt. On a
GPU, a value that does not fit exhausts the memory; on a CPU, --memory-gib sets the limit. If the grid has question (i),
the next `snakemake` shows the result there.
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
from profile_grid.largest.fitting import FITTED, FitResult, file_name, largest_fitting, try_fit, with_value
from profile_grid.quantities import GIBIBYTE, memory
from profile_grid.study.stages import TIMING
from workflow.command import run_command

MULTIPLES = dict(zip(FITTED, (64, 1), strict=True))


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
    result = bisected(entry, arguments)
    write_json(arguments.results / "largest" / file_name(arguments.run, arguments.dimension), result)
    predicted = "not known" if result["predicted"] is None else result["predicted"]
    say(f"{arguments.run}: largest {arguments.dimension} that fits is {result['largest']}; by the shapes {predicted}")


def entry_of(plan: Path, run: str) -> dict:
    """The run's entry in the plan of the grid; raises OutsideError without one."""
    if not plan.exists():
        raise OutsideError(f"{plan} is missing; make it: snakemake --cores 1 {plan}")
    every = json.loads(plan.read_text())["runs"]
    entries = {entry["run"]: entry for entry in every if TIMING.name in entry["specifications"]}
    if run not in entries:
        raise OutsideError(f"--run: {run!r} is not a run of a model in the grid; runs: {', '.join(list(entries)[:5])}")
    return entries[run]


def bisected(entry: dict, arguments: argparse.Namespace) -> dict:
    """The largest value that fits, the value that the shapes predict, and every attempt."""
    dimension, unit = arguments.dimension, arguments.multiple_of or MULTIPLES[arguments.dimension]
    limit = arguments.memory_gib and int(arguments.memory_gib * GIBIBYTE)
    specification, tries = entry["specifications"][TIMING.name], {}

    def fits(number: int) -> bool:
        value = number * unit
        if value not in tries:
            tries[value] = attempt = one_try(with_value(specification, dimension, value), limit, arguments)
            peak = f", {memory(attempt.peak_bytes)}" if attempt.peak_bytes else ""
            say(f"{dimension} {value} {'fits' if attempt.fits else 'does not fit'}{peak}")
        return tries[value].fits

    start = max(entry[dimension] // unit, 1)
    fits(start)  # which measures how much memory there is
    total = tries[start * unit].device_total_bytes
    expected = predicted(specification["program"], dimension, (limit or total) - (NON_TENSOR_BYTES if total else 0))
    largest = largest_fitting(fits, start if expected is None else max(expected // unit, 1)) * unit
    return {
        "run": entry["run"], "dimension": dimension, "multiple_of": unit, "limit_bytes": limit or total,
        "largest": largest, "predicted": expected, "specification": specification,
        "tries": [{"value": value, **vars(attempt)} for value, attempt in sorted(tries.items())],
    }  # fmt: skip


def one_try(specification: dict, limit: int | None, arguments: argparse.Namespace) -> FitResult:
    """The result of one process with this specification, which holds its lease exclusively."""
    program, log = specification["program"], Path("logs/largest") / f"{arguments.run}.log"
    with leases_for(program["device"], program["run"], say=say) as leases, tempfile.TemporaryDirectory() as scratch:
        job = Job(specification, Path(scratch), Path(scratch), log, arguments.time_limit_s, leases)
        return try_fit(job, limit)


def predicted(program: dict, dimension: str, available: int) -> int | None:
    """The largest value whose estimated peak fits into the available bytes; None for other people's models."""
    if shape_of(program) is None:
        return None

    def fits(value: int) -> bool:
        dimensions = program["dimensions"] | {dimension: value}
        shape = shape_of(program | {"dimensions": dimensions})
        return estimated_peak_bytes(shape, dimensions["mode"], dimensions) <= available

    return largest_fitting(fits, program["dimensions"][dimension])


if __name__ == "__main__":
    run_command(main)
