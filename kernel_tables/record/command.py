"""`kernel-tables record`: runs a program, records a window of it, keeps the capture, and summarises it.

All messages go to standard error, since standard output is the program's. The exit status is the program's (0 if --end
ended it); 3 if it is 0 and no capture was written.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path, PurePath
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from kernel_recorder import keeping, nsys_profile
from kernel_recorder.contents import odd_steps, varying_sentence
from kernel_recorder.in_process.handover import NSYS, STEP, read_notes
from kernel_recorder.nothing_recorded import missing_recording_reason
from kernel_recorder.options import settings_of
from kernel_recorder.outcome import Outcome, is_recorded, outcomes_of
from kernel_recorder.program import ProgramEnd, require_program, run_recorded
from kernel_recorder.remarks import (
    cost_sentence,
    rank_phrase,
    remarks,
    slowdown_sentence,
    unrecorded_processes_sentence,
    window_phrase,
)
from kernel_tables.clean_text import visible
from kernel_tables.errors import ERROR, TraceError
from kernel_tables.reading import nsys

if TYPE_CHECKING:
    from kernel_tables.diagnosis.diagnose import Diagnosis
    from kernel_tables.trace import Trace


# Codes of findings that are not printed: nsys warns of every window that ends before the program, and of processes that
# use no GPU; neither is a problem.
EXPECTED_CODES = frozenset({"nsys_hedge", "nsys_warning"})
SHORT_STEPS = "short_steps"  # also of the step in which the program ended, which is reported separately
STEPS_VARY, UNSTEADY_STEPS = "steps_vary", "unsteady_steps"
NOTHING_RECORDED_STATUS = 3  # the exit status if no capture was written
MAX_ROWS = 40  # of ranges or kernels; the capture has them all
MAX_LOSSES = 3  # `kernel-tables diagnose` prints them all
MAX_PROGRAM_CHARS = 300
HIDDEN = "***"
SECRET_NAME = re.compile(r"(?i)key|token|secret|passw|pwd|credential|auth|cookie|session|dsn")
# What secret values look like: keys of known services, and long texts that mix letters and digits.
SECRET_VALUE = re.compile(
    r"(?:hf_|sk-|ghp_|gho_|github_pat_|xox|AKIA|AIza|eyJ)\S{8,}|(?=\S*\d)(?=\S*[A-Za-z])[\w+/=-]{32,}"
)
USER_IN_URL = re.compile(r"(\w+://)[^/\s@]*@")
ABSOLUTE_PATH = re.compile(r"(?:~|/|[A-Za-z]:\\)[^\s=,:]*[/\\](?=[^/\\\s])")


def record(options: argparse.Namespace) -> int:
    """Records the program, and returns the exit status. Raises TraceError before it runs if it cannot be recorded."""
    settings = settings_of(options, options.profiler or nsys_profile.profiler_of_this_machine())
    program = options.program[1:] if options.program[:1] == ["--"] else options.program
    require_program(program)
    if settings.profiler == NSYS and nsys.find() is None:
        raise TraceError("--profiler nsys: there is no nsys on PATH; install Nsight Systems, or take --profiler torch")
    output = keeping.free_output(options.output)
    with tempfile.TemporaryDirectory(prefix="kernel-tables-") as folder:
        handover_folder = Path(folder)
        settings.write(handover_folder)
        program_end = run_recorded(
            program, handover_folder, under_nsys=settings.profiler == NSYS, time_limit_s=options.time_limit,
            end_when=lambda: options.end and is_recorded(read_notes(handover_folder)),
        )  # fmt: skip
        notes = read_notes(handover_folder)
        outcomes = outcomes_of(settings, notes, program_end, folder_is_gone=not handover_folder.exists())
        recorded = [outcome for outcome in outcomes if outcome.has_recording]
        captures = _write_captures(recorded, handover_folder, output, program_text(program))
    with suppress(BrokenPipeError):  # nobody reads the messages; the captures are kept, and the exit status is the same
        _say(*_end_sentences(program_end, options.time_limit))
        for outcome in outcomes:
            if not outcome.has_recording:
                _say(f"nothing was recorded{rank_phrase(outcome)}: {missing_recording_reason(outcome)}")
        _print_captures(recorded, captures)
    has_capture = any(isinstance(capture, Path) for capture in captures)
    return program_end.exit_status or (0 if has_capture else NOTHING_RECORDED_STATUS)


def _end_sentences(program_end: ProgramEnd, time_limit_s: float | None) -> Iterator[str]:
    if program_end.timed_out:
        yield f"the program was ended at the time limit of {time_limit_s:g} s"
    elif program_end.by_request:
        yield "the program was ended as by Ctrl-C, since its window is recorded"
    elif program_end.returncode:
        yield f"the program {program_end.phrase}"


def _write_captures(recorded: Sequence[Outcome], folder: Path, output: Path, program: str) -> list[Path | TraceError]:
    """For each of these outcomes, the path of its capture, or the error why there is none."""
    try:
        return keeping.write_captures(folder, output, [outcome.recording(program) for outcome in recorded])
    except TraceError as error:
        return [error] * len(recorded)
    except OSError as error:
        reason = f"{output}: {error.strerror or error}; check the path and the space on its disk"
        return [TraceError(reason)] * len(recorded)


def _print_captures(recorded: Sequence[Outcome], captures: Sequence[Path | TraceError]) -> None:
    """Prints which captures were written and remarks on them, what is in each (the first one last, and in full), and
    the cost of communication between several."""
    pairs = []
    for outcome, capture in zip(recorded, captures, strict=True):
        if isinstance(capture, TraceError):
            _say(f"nothing is kept{rank_phrase(outcome)}: {capture}")
        else:
            pairs.append((outcome, capture))
    if not pairs:
        return
    sentences = [sentence for outcome, _ in pairs for sentence in remarks(outcome)]
    # Every outcome has the notes on unrecorded processes; the cost is printed of the first rank only.
    _say(*dict.fromkeys(sentences), *unrecorded_processes_sentence(recorded[0]), *cost_sentence(recorded[0]))
    for outcome, capture in pairs:
        _say(f"{capture}: {window_phrase(outcome)}; kernel-tables report {capture} makes a page of it")
    for outcome, capture in pairs[1:]:
        _print_contents(capture, outcome, in_full=False)
    first_outcome, first_capture = pairs[0]
    _print_contents(first_capture, first_outcome, in_full=True)
    if len(pairs) > 1:
        kept_outcomes, kept_captures = zip(*pairs, strict=True)
        _print_communication(kept_outcomes, kept_captures)


def _print_communication(outcomes: Sequence[Outcome], captures: Sequence[Path]) -> None:
    from kernel_tables.ranks.communication import communication
    from kernel_tables.ranks.ranks import ranks_of
    from kernel_tables.terminal.tables import communication_sentences
    from kernel_tables.trace import Trace

    step_name = outcomes[0].settings.range or STEP
    try:
        with ExitStack() as stack:
            ranks = ranks_of([stack.enter_context(Trace(path)) for path in captures])
            printed_numbers = {rank.number: rank.number for rank in ranks}
            if len(ranks) == len(outcomes):  # captures may lack the numbers of their ranks; both are in the same order
                printed_numbers = dict(zip(printed_numbers, (outcome.rank for outcome in outcomes), strict=True))
            sentences = list(communication_sentences(communication(ranks, step_name), printed_numbers))
    except TraceError as error:
        _say(f"the cost of communication is unknown: {error}")
        return
    _say(*sentences)
    if sentences:
        option = "" if step_name == STEP else f" --step-name {shlex.quote(step_name)}"
        files = shlex.join(map(str, captures))
        _say(f"each collective: kernel-tables communication {files} --collectives{option}")


def _print_contents(capture: Path, outcome: Outcome, *, in_full: bool) -> None:
    """Prints the unexpected findings of `check`; `in_full` also the ranges or kernels, and where time is lost."""
    from kernel_tables.diagnosis.diagnose import diagnose
    from kernel_tables.diagnosis.scope import Scope
    from kernel_tables.diagnosis.step_rules import differ_in_work
    from kernel_tables.diagnosis.step_time import step_time
    from kernel_tables.trace import Trace

    losses, percent_base, step_name = [], "", outcome.settings.range or STEP
    try:
        with Trace(capture) as trace:
            scope = Scope(trace, step_name)
            expected = EXPECTED_CODES | {SHORT_STEPS} if outcome.was_cut else EXPECTED_CODES
            varying = list(varying_sentence(outcome.window_facts()))
            if varying or not differ_in_work(scope):  # `varying` says more, or the difference is small
                expected |= {STEPS_VARY}
            findings = [finding for finding in trace.check(outcome.expected_steps) if finding.code not in expected]
            if in_full:
                _print_tree_or_kernels(trace, step_name, capture, under=STEP if outcome.has_prelude else None)
                _say(*slowdown_sentence(outcome))
                if not any(finding.severity == ERROR for finding in findings):
                    losses = [loss for loss in diagnose(trace, step_name) if not loss.abstained][:MAX_LOSSES]
                time = step_time(scope)
                percent_base = "" if time is None else time.percent_base  # what percentages of losses are shares of
    except TraceError as error:
        _say(f"no table is made of it: {error}")
        return
    for finding in findings:
        _say(f"{finding.severity}{'' if in_full else rank_phrase(outcome)}: {finding.message}")
    if in_full:
        _say(*varying, *(loss.sentence(percent_base) for loss in losses if not _is_explained(loss, outcome)))


def _is_explained(loss: Diagnosis, outcome: Outcome) -> bool:
    """Whether `loss` is only about single slow steps (not a drift) that the sentence on varying calls explains."""
    from kernel_tables.diagnosis.step_rules import DRIFT

    if loss.code != UNSTEADY_STEPS or abs(loss.evidence["drift_percent"]) >= 100 * DRIFT:
        return False
    slow_steps = {int(number) for number in loss.evidence["slow_steps_ms"]}
    return bool(slow_steps) and slow_steps <= odd_steps(outcome.window_facts())


def _print_tree_or_kernels(trace: Trace, step_name: str, capture: Path, under: str | None) -> None:
    """Prints the tree of ranges (all, or inside `under`), or without ranges the kernels; then the time of a step."""
    from kernel_tables.diagnosis.scope import Scope
    from kernel_tables.diagnosis.step_time import step_time
    from kernel_tables.terminal.tables import kernel_lines, names_of, rest_line, tree_lines
    from kernel_tables.units import CPU_ONLY_NOTE, time_heading

    width, file = get_terminal_size().columns, shlex.quote(str(capture))
    if trace.range_names:
        command = f"kernel-tables ranges --tree{f' --under {under}' if under else ''} {file} --top 0"
        lines = tree_lines(trace, MAX_ROWS, width, under, all_rows_command=command)
    else:
        command = f"kernel-tables kernels {file} --top 0"
        kernels, heading = trace.kernels(), time_heading(trace.is_cpu_only)
        all_ns = int(kernels["total_ns"].sum())
        lines = kernel_lines(kernels.head(MAX_ROWS), all_ns, width, heading, names_of(kernels))
        left_out = max(len(kernels) - MAX_ROWS, 0)
        lines += rest_line(left_out, "kernels", share=None, width=width, heading=heading, all_rows_command=command)
    encoding = sys.stderr.encoding or "utf-8"  # it may lack the characters of bars
    print(lines.encode(encoding, "replace").decode(encoding), file=sys.stderr)
    if trace.is_cpu_only:
        _say(CPU_ONLY_NOTE)
    if time := step_time(Scope(trace, step_name)):
        _say(time.sentence)


def _say(*sentences: str) -> None:
    for sentence in sentences:
        print(f"kernel-tables record: {visible(' '.join(sentence.split()))}", file=sys.stderr, flush=True)


def program_text(arguments: Sequence[str]) -> str:
    """The command line without secrets, at most MAX_PROGRAM_CHARS long: values that look like a secret, or whose names
    do, are hidden, as are users in URLs; of absolute paths only the last name remains."""
    text = " ".join(_without_secrets(arguments))
    return text if len(text) <= MAX_PROGRAM_CHARS else text[: MAX_PROGRAM_CHARS - 1] + "…"


def _without_secrets(arguments: Sequence[str]) -> Iterator[str]:
    hide_next = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        is_option = argument.startswith("-")
        if hide_next and not is_option:
            yield HIDDEN
        elif equals and SECRET_NAME.search(name):
            yield f"{name}={HIDDEN}"
        else:
            yield _without_secret_or_folder(argument)
        # The value of an option such as --token is the next argument.
        hide_next = is_option and not equals and bool(SECRET_NAME.search(argument))


def _without_secret_or_folder(argument: str) -> str:
    name, equals, value = argument.partition("=")
    if SECRET_VALUE.search(value if equals else argument):
        return f"{name}={HIDDEN}" if equals else HIDDEN
    argument = USER_IN_URL.sub(rf"\1{HIDDEN}@", argument)
    if "://" in argument:
        return argument
    if equals:
        return f"{name}={_without_folder(value)}"
    return _without_folder(argument)


def _without_folder(text: str) -> str:
    """The last name of an absolute path with folders; other texts are unchanged."""
    return PurePath(text).name if ABSOLUTE_PATH.match(text) else text
