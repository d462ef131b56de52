"""The arguments of `kernel-tables record`. Nothing heavy is imported, so that --help is answered at once."""

import argparse
from pathlib import Path

from kernel_recorder.in_process import handover as settings
from kernel_tables.errors import TraceError

MODULES, NONE = settings.MODULES, "none"


def add_options(command: argparse.ArgumentParser) -> None:
    """Gives the command its arguments."""
    _add_window_options(command)
    command.add_argument(
        "--ranges", default=settings.AUTO, metavar=f"{MODULES}[:DEPTH]|{NONE}",
        help="ranges for every module of the models (to DEPTH parts of their names), or none; default: modules, if the"
        " program opens no ranges itself, and otherwise only a range for each step",
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
        f"By default, the first {settings.DEFAULT_SKIP} steps are skipped and the next {settings.DEFAULT_STEPS}"
        " recorded. A step is an optimizer step or, without an optimizer, a call of the model or a replay of a CUDA"
        " graph.",
    )
    window.add_argument(
        "--skip", type=int, default=settings.DEFAULT_SKIP, metavar="N",
        help=f"steps, calls, or instances of the range, to skip first (default: {settings.DEFAULT_SKIP})",
    )  # fmt: skip
    window.add_argument(
        "--steps", type=int, default=settings.DEFAULT_STEPS, metavar="N",
        help=f"how many of them to record after that (default: {settings.DEFAULT_STEPS})",
    )  # fmt: skip
    other = window.add_mutually_exclusive_group()
    other.add_argument("--range", metavar="NAME", help="record instances of this range of the program instead")
    other.add_argument("--calls", action="store_true", help="record calls of the model, even if there is an optimizer")
    other.add_argument(
        "--seconds", type=float, metavar="S", help="record for S seconds instead, from the first call of a model"
    )
    other.add_argument(
        "--cuda-profiler-api", action="store_true", help="record between the program's cudaProfilerStart and ...Stop"
    )
    window.add_argument(
        "--after", type=float, default=0.0, metavar="S",
        help="with --seconds: start S seconds after the first call of a model (default: 0)",
    )  # fmt: skip


def settings_of(options: argparse.Namespace, profiler: str) -> settings.Settings:
    """The settings from the arguments. TraceError if they contradict each other."""
    if options.steps < 1 or options.skip < 0:
        raise TraceError("--steps has to be at least 1, and --skip at least 0")
    window = _window(options)
    if window == settings.STEPS and options.skip < 1:
        raise TraceError("--skip 0: a step begins where the one before ends, so the first cannot be recorded; --skip 1")
    if (options.seconds is not None and options.seconds <= 0) or options.after < 0:
        raise TraceError("--seconds has to be more than 0, and --after no less than 0")
    modules, depth = modules_of(options.ranges)
    return settings.Settings(
        profiler=profiler, window=window, skip=options.skip, steps=options.steps, range=options.range,
        after=options.after, seconds=options.seconds, modules=modules, depth=depth,
        quiet_end=options.end,
    )  # fmt: skip


def _window(options: argparse.Namespace) -> str:
    if options.range is not None:
        return settings.RANGE
    if options.seconds is not None:
        return settings.SECONDS
    if options.calls:
        return settings.CALLS
    return settings.PROGRAM if options.cuda_profiler_api else settings.STEPS


def modules_of(text: str) -> tuple[str, int | None]:
    """Whether modules get ranges, and to which depth, from the text of --ranges. TraceError if it is invalid."""
    if text in (settings.AUTO, NONE):
        return (settings.AUTO if text == settings.AUTO else settings.NEVER), None
    kind, colon, depth = text.partition(":")
    if kind != MODULES or (colon and not (depth.isascii() and depth.isdigit() and int(depth) > 0)):
        raise TraceError(f"--ranges {text!r}: expected {MODULES}, {MODULES}:DEPTH such as {MODULES}:2, or {NONE}")
    return settings.ALWAYS, int(depth) if colon else None
