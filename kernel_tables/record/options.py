"""The arguments of `kernel-tables record`. Nothing heavy is imported, so that --help is answered at once."""

import argparse
from pathlib import Path
from typing import NamedTuple

from kernel_recorder.in_process import handover
from kernel_tables.errors import TraceError

MODULES, NONE = handover.MODULES, "none"  # texts of --ranges; NONE becomes handover.NEVER


class ModuleRangesOption(NamedTuple):
    """Whether modules get ranges (AUTO, ALWAYS, NEVER), and how many dotted components names have (None: all)."""

    when: str
    depth: int | None = None


def add_options(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    _add_window_options(command)
    command.add_argument(
        "--ranges", default=handover.AUTO, metavar=f"{MODULES}[:DEPTH]|{NONE}",
        help="ranges for every module of the models (to DEPTH parts of their names), or none; default: modules, if the"
        " program opens no ranges itself; otherwise only a range for each step, unless it opens `step` itself",
    )  # fmt: skip
    command.add_argument(
        "--profiler", choices=("nsys", "torch"), help="default: nsys if it is on PATH and there is a GPU, else torch"
    )
    command.add_argument(
        "--end", action="store_true", help="stop the program, with status 0, once the window is recorded"
    )
    command.add_argument("--time-limit", type=float, metavar="S", help="stop the program after S seconds")
    command.add_argument(
        "-o", "--output", type=Path, metavar="FILE",
        help="the capture (default: recording.sqlite; if it exists, recording-2.sqlite and so on)",
    )  # fmt: skip
    command.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help="the program and its arguments"
    )


def _add_window_options(command: argparse.ArgumentParser) -> None:
    window = command.add_argument_group(
        "the window",
        f"By default, the first {handover.DEFAULT_SKIP} steps are skipped and the next {handover.DEFAULT_STEPS}"
        " recorded. A step is an optimizer step or, without an optimizer, a call of the model or a replay of a CUDA"
        " graph.",
    )
    window.add_argument(
        "--skip", type=int, default=handover.DEFAULT_SKIP, metavar="N",
        help=f"steps, calls, or instances of the range, to skip first (default: {handover.DEFAULT_SKIP}; at least 1 for"
        " steps, since a step begins where the one before it ends)",
    )  # fmt: skip
    window.add_argument(
        "--steps", type=int, default=handover.DEFAULT_STEPS, metavar="N",
        help=f"how many of them to record after that (default: {handover.DEFAULT_STEPS})",
    )  # fmt: skip
    kinds = window.add_mutually_exclusive_group()
    kinds.add_argument("--range", metavar="NAME", help="record instances of this range of the program instead")
    kinds.add_argument("--calls", action="store_true", help="record calls of the model, even if there is an optimizer")
    kinds.add_argument(
        "--seconds", type=float, metavar="S", help="record for S seconds instead, from the first call of a model"
    )
    kinds.add_argument(
        "--cuda-profiler-api", action="store_true", help="record between the program's cudaProfilerStart and ...Stop"
    )
    window.add_argument(
        "--after", type=float, default=0.0, metavar="S",
        help="with --seconds: start S seconds after the first call of a model (default: 0)",
    )  # fmt: skip


def settings_of(options: argparse.Namespace, profiler: str) -> handover.Settings:
    """The settings from the arguments. TraceError if one is invalid."""
    if options.steps < 1 or options.skip < 0:
        raise TraceError("--steps has to be at least 1, and --skip at least 0")
    window = _window_kind(options)
    if window == handover.STEPS and options.skip < 1:
        raise TraceError("--skip 0: a step begins where the one before ends, so the first cannot be recorded; --skip 1")
    if (options.seconds is not None and options.seconds <= 0) or options.after < 0:
        raise TraceError("--seconds has to be more than 0, and --after no less than 0")
    modules = parse_ranges(options.ranges)
    return handover.Settings(
        profiler=profiler, window=window, skip=options.skip, steps=options.steps, range=options.range,
        delay_s=options.after, duration_s=options.seconds, added_ranges=modules.when, depth=modules.depth,
        quiet_end=options.end,
    )  # fmt: skip


def _window_kind(options: argparse.Namespace) -> str:
    if options.range is not None:
        return handover.RANGE
    if options.seconds is not None:
        return handover.SECONDS
    if options.calls:
        return handover.CALLS
    return handover.PROGRAM if options.cuda_profiler_api else handover.STEPS


def parse_ranges(text: str) -> ModuleRangesOption:
    """The meaning of the text of --ranges. TraceError if it is invalid."""
    if text in (handover.AUTO, NONE):
        return ModuleRangesOption(handover.NEVER if text == NONE else handover.AUTO)
    kind, colon, depth = text.partition(":")
    if kind != MODULES or (colon and not (depth.isascii() and depth.isdigit() and int(depth) > 0)):
        raise TraceError(f"--ranges {text!r}: expected {MODULES}, {MODULES}:DEPTH such as {MODULES}:2, or {NONE}")
    return ModuleRangesOption(handover.ALWAYS, int(depth) if colon else None)
