"""`kernel-tables record`: runs a program, records a window of it, keeps the capture, and summarises it.

All messages go to standard error, since standard output is the program's. The exit status is the program's (0 if --end
ended it); 3 if it is 0 and no capture was written. Nothing heavy is imported before the program has ended.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePath
from shutil import get_terminal_size, which
from typing import TYPE_CHECKING

from kernel_tables import output, text
from kernel_tables.errors import ERROR, TraceError
from kernel_tables.record import handover
from kernel_tables.record.handover import NSYS, STEP, TORCH

if TYPE_CHECKING:
    from kernel_tables.profile import Profile
    from kernel_tables.record.outcome import Outcome

say = partial(output.say, command="record")


def add_window(command: argparse.ArgumentParser, skip: int, steps: int) -> None:
    """Adds the arguments that say which steps are recorded or timed, with these defaults."""
    taken = "recorded" if skip == handover.DEFAULT_SKIP else "timed"
    window = command.add_argument_group(
        "the window",
        f"By default, the first {skip} steps are skipped and the next {steps} {taken}. A"
        " step is an optimizer step or, without an optimizer, a call of the model or a replay of a CUDA graph.",
    )
    kinds = window.add_mutually_exclusive_group()
    for group, name, details in (
        (window, "--skip", {"type": int, "default": skip, "metavar": "N", "help":
            f"steps, calls, or instances of the range, to skip first (default: {skip}; at least 1 for"
            " steps, since a step begins where the one before it ends)"}),
        (window, "--steps", {"type": int, "default": steps, "metavar": "N", "help":
            f"how many of them to take after that (default: {steps})"}),
        (kinds, "--range", {"metavar": "NAME", "help": "take instances of this range of the program instead"}),
        (kinds, "--calls", {"action": "store_true", "help": "take calls of the model, even if there is an optimizer"}),
    ):  # fmt: skip
        group.add_argument(name, **details)


def add_options(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_window(command, handover.DEFAULT_SKIP, handover.DEFAULT_STEPS)
    for names, details in (
        (["--ranges"], {"choices": (handover.MODULES, handover.NONE), "default": handover.AUTO, "help":
            "ranges for every module of the models, or none; default: modules, if the program opens no ranges itself;"
            " otherwise only a range for each step, unless it opens `step` itself"}),
        (["--profiler"], {"choices": (NSYS, TORCH), "help":
            "default: nsys if it is on PATH and there is a GPU, else torch"}),
        (["--nsys-options"], {"type": shlex.split, "default": [], "metavar": '"..."', "help":
            "further options of nsys profile, for `kernel-tables host`:"
            " --nsys-options=\"--trace=cuda,nvtx,osrt --python-sampling=true\""}),
        (["--end"], {"action": "store_true", "help":
            "stop the program, with status 0, once the window is recorded"}),
        (["-o", "--output"], {"type": Path, "metavar": "FILE", "help":
            "the capture (default: recording.sqlite; if it exists, recording-2.sqlite and so on)"}),
    ):  # fmt: skip
        command.add_argument(*names, **details)


def window_of(options: argparse.Namespace) -> dict[str, object]:
    """The settings from the arguments of the window. TraceError if one is invalid."""
    window = handover.CALLS if options.calls else handover.STEPS if options.range is None else handover.RANGE
    if options.steps < 1 or options.skip < 0:
        raise TraceError("--steps has to be at least 1, and --skip at least 0")
    if window == handover.STEPS and options.skip < 1:
        raise TraceError("--skip 0: a step begins where the one before ends, so the first cannot be recorded; --skip 1")
    return {"window": window, "skip": options.skip, "steps": options.steps, "range": options.range}


def default_profiler() -> str:
    """nsys, if it is on PATH and the driver shows a GPU."""
    # without importing torch
    has_gpu = any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()
    return NSYS if which("nsys") and has_gpu else TORCH


def settings_of(options: argparse.Namespace) -> handover.Settings:
    """The settings from the arguments. TraceError if one is invalid."""
    window, profiler = window_of(options), options.profiler or default_profiler()
    ours = r"--(output|export|force-overwrite|capture-range|command-file)"
    refused = [one for one in options.nsys_options if re.match(ours, one) or not one.startswith("--")]
    if profiler == NSYS and which("nsys") is None:
        raise TraceError("--profiler nsys: there is no nsys on PATH; install Nsight Systems, or take --profiler torch")
    if options.nsys_options and profiler != NSYS:
        raise TraceError("--nsys-options: this machine records by PyTorch's profiler, which has none of these")
    if refused:
        raise TraceError(f"--nsys-options {refused}: write --name=value; what opens the window and the file is ours")
    return handover.Settings(profiler=profiler, added_ranges=options.ranges, **window)


def record(options: argparse.Namespace) -> int:
    """Records the program, and returns the exit status. Raises TraceError before it runs if it cannot be recorded."""
    from kernel_tables.record import keeping
    from kernel_tables.record.outcome import is_recorded, outcomes_of
    from kernel_tables.record.program import run_recorded

    settings, program = settings_of(options), program_of(options.program)
    output = keeping.free_output(options.output)
    with tempfile.TemporaryDirectory(prefix="kernel-tables-") as temporary:
        folder = Path(temporary)
        settings.write(folder)
        program_end = run_recorded(
            program, folder, nsys_options=options.nsys_options if settings.profiler == NSYS else None,
            end_when=lambda: options.end and is_recorded(handover.read_notes(folder)),
        )  # fmt: skip
        outcomes = outcomes_of(settings, handover.read_notes(folder), program_end)
        recorded = [outcome for outcome in outcomes if outcome.has_recording]
        recordings = [outcome.recording(program_text(program)) for outcome in recorded]
        try:
            captures = keeping.write_captures(folder, output, recordings)
        except TraceError as error:
            captures = [error] * len(recorded)
    with suppress(BrokenPipeError):  # nobody reads the messages; the captures are kept, and the exit status is the same
        if program_end.returncode:
            say(f"the program {program_end.phrase}")
        for outcome in outcomes:
            if not outcome.has_recording:
                say(f"nothing was recorded{outcome.rank_phrase}: {outcome.missing_reason()}")
        _print_captures(list(zip(recorded, captures, strict=True)))
    return program_end.exit_status or (0 if any(isinstance(capture, Path) for capture in captures) else 3)


def _print_captures(pairs: Sequence[tuple[Outcome, Path | TraceError]]) -> None:
    """Prints remarks on what was recorded, which captures were written, and what is in each, the first in full."""
    say(*dict.fromkeys(sentence for outcome, _ in pairs for sentence in outcome.remarks()))
    for outcome, capture in pairs:
        if isinstance(capture, TraceError):
            say(f"nothing is kept{outcome.rank_phrase}: {capture}")
    kept = [(outcome, capture) for outcome, capture in pairs if isinstance(capture, Path)]
    for outcome, capture in kept:
        say(f"{capture}: {outcome.window_phrase()}; kernel-tables report {capture} makes a page of it")
        _print_contents(capture, outcome, in_full=capture is kept[0][1])
    if len(kept) > 1:
        range_name = kept[0][0].settings.range
        option = f" --step-name {shlex.quote(range_name)}" if range_name else ""
        files = shlex.join(str(capture) for _, capture in kept)
        say(f"what communication costs: kernel-tables communication {files}{option}")


def _print_contents(capture: Path, outcome: Outcome, *, in_full: bool) -> None:
    """Prints the unexpected findings of `check`; `in_full` also the ranges or kernels, and where time is lost."""
    from kernel_tables.profile import read
    from kernel_tables.steps import Scope, step_time

    sentences, step_name = [], outcome.settings.range or STEP
    # nsys warns of every window that ends before the program, and of processes that use no GPU; neither is a problem.
    # The step in which the program ended is short, or without a kernel, which is said of it.
    expected = {"nsys_hedge", "nsys_warning", *(["short_steps"] if outcome.was_cut else [])}
    expected |= set() if outcome.has_complete_step else {"no_kernels"}
    rank = "" if in_full else outcome.rank_phrase
    try:
        with read(capture) as profile:
            scope = Scope(profile, step_name)
            expected |= set() if scope.differs_in_work else {"steps_vary"}  # by little
            findings = [one for one in profile.check(outcome.expected_steps) if one.code not in expected]
            if in_full:
                time = step_time(scope)
                if profile.capture.ranges.names:
                    _print_tree(profile, capture, under=STEP if outcome.has_prelude else None)
                sentences += [time.sentence] if time else []
                if not any(finding.severity == ERROR for finding in findings):
                    losses = [loss for loss in profile.diagnose(step_name) if not loss.abstained][:3]
                    sentences += [loss.sentence(time.percent_base if time else "") for loss in losses]
    except TraceError as error:
        say(f"no table is made of it: {error}")
        return
    say(*sentences, *(f"{finding.severity}{rank}: {finding.message}" for finding in findings))


def _print_tree(profile: Profile, capture: Path, under: str | None) -> None:
    """Prints the tree of ranges (all, or inside `under`)."""
    command = f"kernel-tables ranges --tree{f' --under {under}' if under else ''} {shlex.quote(str(capture))} --top 0"
    width = get_terminal_size().columns
    lines = text.tree_lines(profile, text.ROWS_IN_A_TERMINAL, width, under, all_rows_command=command)
    print(lines, file=sys.stderr)
    say(*([text.CPU_ONLY_NOTE] if profile.is_cpu_only else []))


def program_of(words: Sequence[str]) -> list[str]:
    """The program from the words of a command line, without the `--` before it. TraceError if it cannot be run."""
    program = [*words[1:]] if words[:1] == ["--"] else [*words]
    if not program:
        raise TraceError("there is no program; name it after --, as in `record -- python train.py`")
    if which(program[0]) is None:
        raise TraceError(f"{program[0]}: no such program, or it cannot be run; a script needs python before it")
    return program


def program_text(arguments: Sequence[str]) -> str:
    """The program as the capture keeps it, without what may be private: the names of its command and its scripts."""
    scripts = [word for word in arguments[1:] if word.endswith(".py")]
    return " ".join(PurePath(word).name for word in [*arguments[:1], *scripts])[:300]
