"""The options of `python -m cs336_model.program.benchmark`."""

import argparse
from pathlib import Path

from cs336_model.program.windows import EMITTER_OF_PROFILER

DESCRIPTION = "Times the steps of one model, or runs them under a profiler, and writes what came out as JSON."


def command_parser() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = argparse.ArgumentParser(prog="python -m cs336_model.program.benchmark", description=DESCRIPTION)
    parser.add_argument("--spec", required=True, help="the run, as JSON (see cs336_model/program/spec.py)")
    parser.add_argument("--output", required=True, type=Path, help="where the result is written, as JSON")
    parser.add_argument("--profiler", choices=tuple(EMITTER_OF_PROFILER), default="none")
    parser.add_argument("--lease", type=Path, help="the socket where this program asks for its GPU")
    parser.add_argument("--capture", type=Path, help="where --profiler torch, memory or energy writes what it saw")
    parser.add_argument(
        "--accuracy", choices=("yes", "no"), default="yes", help="of --profiler none: hold it against fp64"
    )
    parser.add_argument("--windows", type=int, default=3, help="windows of steps of --profiler energy")
    parser.add_argument("--window-s", type=float, default=5.0, help="seconds of each at least")
    parser.add_argument("--time-limit-s", type=float, help="when whoever starts this program ends it")
    return parser
