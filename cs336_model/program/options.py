"""What the measured programs have in common: their options, and the start of their work."""

import argparse
from pathlib import Path

from cs336_model.program.lease import take_lease
from cs336_model.program.process_cost import Progress, print_stacks_before, process_age_seconds


def program_parser(module: str, description: str) -> argparse.ArgumentParser:
    """A parser with the options that every measured program has."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--spec", required=True, help="specification of the run, as JSON (cs336_model/program/spec.py)")
    parser.add_argument("--output", required=True, type=Path, help="file for the result, as JSON")
    parser.add_argument("--lease", type=Path, help="socket where this program asks for its GPUs")
    parser.add_argument("--time-limit-s", type=float, help="this program is killed then; it prints its stacks before")
    return parser


def wait_for_lease(options: argparse.Namespace, progress: Progress) -> None:
    """Waits for the GPUs of the process, after all imports. From then on its time limit counts."""
    with progress.stage("wait"):
        take_lease(options.lease)
    print_stacks_before(options.time_limit_s, process_age_seconds() - progress.seconds["wait"])
