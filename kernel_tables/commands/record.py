"""The command that runs a program and records it: kernel-tables record -- python train.py."""

import argparse
from importlib.util import find_spec
from typing import NoReturn

from kernel_tables import NO_RECORDER
from kernel_tables.errors import TraceError

SUMMARY = "run a Python program unchanged, record some of its steps, and print where the time goes"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments; without the package kernel_recorder, all arguments are refused."""
    if find_spec("kernel_recorder") is None:
        parser.parse_known_args = _refuse  # which argparse calls for a subcommand
        return
    from kernel_recorder.options import add_options

    add_options(parser)


def run(options: argparse.Namespace) -> int:
    from kernel_recorder.command import record

    return record(options)


def _refuse(*_: object) -> NoReturn:
    raise TraceError(NO_RECORDER)
