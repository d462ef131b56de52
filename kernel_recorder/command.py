"""`kernel-tables record`: runs a program, records a window of it, keeps the capture, and summarises it.

All messages go to standard error, since standard output is the program's. The exit status is the program's; 3 if the
program succeeded and nothing was recorded.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path, PurePath
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from kernel_recorder import keeping, nsys_profile
from kernel_recorder.contents import varying_sentence
from kernel_recorder.in_process.handover import NSYS, STEP, read_notes
from kernel_recorder.nothing_recorded import why_nothing
from kernel_recorder.options import settings_of
from kernel_recorder.outcome import Outcome, is_recorded, outcomes
from kernel_recorder.program import Ended, require_program, run_recorded
from kernel_recorder.remarks import cost, elsewhere, of_rank, remarks, slowed, window
from kernel_tables.clean_text import visible
from kernel_tables.errors import ERROR, TraceError
from kernel_tables.reading import nsys

if TYPE_CHECKING:
    from kernel_tables.diagnosis.diagnose import Diagnosis
    from kernel_tables.trace import Trace


# nsys warns of every window that ends before the program, and of processes that use no GPU; neither is a problem.
OF_EVERY_WINDOW = frozenset({"nsys_hedge", "nsys_warning"})
OF_CUT_WINDOWS = frozenset({"short_steps"})  # the step in which the program ended, which is reported separately
VARIES, UNSTEADY = "steps_vary", "unsteady_steps"  # two codes of findings that say that steps differ
NOTHING_RECORDED = 3  # the exit status
MOST_ROWS = 40  # of ranges; the capture has them all
MOST_LOSSES = 3  # `kernel-tables diagnose` prints them all
LONGEST = 300  # characters
HIDDEN = "***"
SECRET = re.compile(r"(?i)key|token|secret|passw|pwd|credential|auth|cookie|session|dsn")
# What secret values look like: keys of known services, and long texts that mix letters and digits.
SECRET_VALUE = re.compile(
    r"(?:hf_|sk-|ghp_|gho_|github_pat_|xox|AKIA|AIza|eyJ)\S{8,}|(?=\S*\d)(?=\S*[A-Za-z])[\w+/=-]{32,}"
)
ADDRESS = re.compile(r"(\w+://)[^/\s@]*@")
PATH = re.compile(r"(?:~|/|[A-Za-z]:\\)[^\s=,:]*[/\\](?=[^/\\\s])")


def record(options: argparse.Namespace) -> int:
    """The program's exit status. Raises TraceError before the program runs if it cannot be recorded."""
    settings = settings_of(options, options.profiler or nsys_profile.profiler_of_this_machine())
    program = options.program[1:] if options.program[:1] == ["--"] else options.program
    require_program(program)
    if settings.profiler == NSYS and nsys.find() is None:
        raise TraceError("--profiler nsys: there is no nsys on PATH; install Nsight Systems, or take --profiler torch")
    output = keeping.free_output(options.output)
    with tempfile.TemporaryDirectory(prefix="kernel-tables-") as folder:
        handover = Path(folder)
        settings.write(handover)
        ended = run_recorded(
            program, handover, under_nsys=settings.profiler == NSYS, time_limit_s=options.time_limit,
            end_when=lambda: options.end and is_recorded(read_notes(handover)),
        )  # fmt: skip
        processes = outcomes(settings, read_notes(handover), ended, folder_is_gone=not handover.exists())
        recorded = [outcome for outcome in processes if outcome.has_recording]
        captures = _keep(recorded, handover, output, program_text(program))
    with suppress(BrokenPipeError):  # nobody reads the messages; the captures are kept, and the exit status is the same
        _say_all(_end_sentences(ended, options.time_limit))
        for outcome in processes:
            if not outcome.has_recording:
                _say(f"nothing was recorded{of_rank(outcome)}: {why_nothing(outcome)}")
        if isinstance(captures, str):
            _say(captures)
        elif captures:
            _print_captures(recorded, captures)
    is_kept = not isinstance(captures, str) and any(isinstance(path, Path) for path in captures)
    return ended.exit_status or (0 if is_kept else NOTHING_RECORDED)


def _end_sentences(ended: Ended, time_limit_s: float | None) -> Iterator[str]:
    if ended.timed_out:
        yield f"the program was ended at the time limit of {time_limit_s:g} s"
    elif ended.recorded:
        yield "the program was ended as by Ctrl-C, since its window is recorded"
    elif ended.returncode:
        yield f"the program {ended.how}"


def _keep(recorded: Sequence[Outcome], handover: Path, output: Path, program: str) -> list[Path | TraceError] | str:
    """The capture of each process or the error why there is none; or a sentence why nothing is kept."""
    if not recorded:
        return []
    try:
        return keeping.keep_recordings(handover, output, [outcome.recorded_process(program) for outcome in recorded])
    except TraceError as error:
        return f"nothing is kept: {error}"
    except OSError as error:
        return f"{output}: {error.strerror or error}, so nothing is kept; check the path and the space on its disk"


def _print_captures(recorded: Sequence[Outcome], captures: Sequence[Path | TraceError]) -> None:
    """Prints which captures were kept and what is in them."""
    said = [sentence for outcome in recorded for sentence in remarks(outcome)]
    _say_all(filter(None, (*dict.fromkeys(said), *elsewhere(recorded[0]), cost(recorded[0]))))
    kept = []
    for outcome, capture in zip(recorded, captures, strict=True):
        if isinstance(capture, TraceError):
            _say(f"nothing is kept{of_rank(outcome)}: {capture}")
        else:
            _say(f"{capture}: {window(outcome)}; kernel-tables report {capture} makes a page of it")
            kept.append((outcome, capture))
    for outcome, capture in [*kept[1:], *kept[:1]]:
        _print_contents(capture, outcome, in_full=outcome is kept[0][0])
    if len(kept) > 1:
        _print_communication(kept)


def _print_communication(kept: Sequence[tuple[Outcome, Path]]) -> None:
    """Prints the cost of communication between the ranks."""
    from kernel_tables.ranks.communication import communication
    from kernel_tables.ranks.ranks import ranks_of
    from kernel_tables.terminal.tables import communication_sentences
    from kernel_tables.trace import Trace

    captures = [capture for _, capture in kept]
    step_name = kept[0][0].settings.range or STEP
    try:
        with ExitStack() as stack:
            ranks = ranks_of([stack.enter_context(Trace(path)) for path in captures])
            numbers = [outcome.rank for outcome, _ in kept]
            lines = list(communication_sentences(communication(ranks, step_name), numbers))
    except TraceError as error:
        _say(f"the cost of communication is unknown: {error}")
        return
    _say_all(lines)
    if lines:
        option = "" if step_name == STEP else f" --step-name {shlex.quote(step_name)}"
        files = shlex.join(map(str, captures))
        _say(f"each collective: kernel-tables communication {files} --collectives{option}")


def _print_contents(capture: Path, outcome: Outcome, *, in_full: bool) -> None:
    """Prints the reasons to doubt the capture; in full also its ranges or kernels, and where time is lost."""
    from kernel_tables.diagnosis.scope import Scope
    from kernel_tables.diagnosis.step_rules import differ_in_work
    from kernel_tables.diagnosis.step_time import step_time
    from kernel_tables.trace import Trace

    lost, base, step_name = [], "", outcome.settings.range or STEP
    try:
        with Trace(capture) as trace:
            expected = OF_EVERY_WINDOW | OF_CUT_WINDOWS if outcome.was_cut else OF_EVERY_WINDOW
            varying = list(varying_sentence(outcome.window_facts()))
            if varying or not differ_in_work(Scope(trace, step_name)):
                expected |= {VARIES}
            findings = [finding for finding in trace.check(outcome.expected_steps) if finding.code not in expected]
            if in_full:
                _print_rows(trace, step_name, capture, under=STEP if outcome.has_prelude else None)
                _say_all(slowed(outcome))
                lost = [] if any(finding.severity == ERROR for finding in findings) else _losses(trace, step_name)
                base = "" if (time := step_time(Scope(trace, step_name))) is None else time.base
    except TraceError as error:
        _say(f"no table is made of it: {error}")
        return
    for finding in findings:
        _say(f"{finding.severity}{'' if in_full else of_rank(outcome)}: {finding.message}")
    _say_all((*(varying if in_full else ()), *(loss.sentence(base) for loss in lost if not _is_said(loss, outcome))))


def _is_said(loss: Diagnosis, outcome: Outcome) -> bool:
    """Whether the sentence on what varies between steps says already why some are slow."""
    from kernel_tables.diagnosis.step_rules import DRIFT

    if loss.code != UNSTEADY or abs(loss.evidence["drift_percent"]) >= 100 * DRIFT:
        return False
    return outcome.explains([int(number) for number in loss.evidence["slow_steps_ms"]])


def _print_rows(trace: Trace, step_name: str, capture: Path, under: str | None) -> None:
    """The tree of ranges, all or those `under` one, and where the time of a step goes; without ranges, the kernels."""
    from kernel_tables.diagnosis.scope import Scope
    from kernel_tables.diagnosis.step_time import step_time
    from kernel_tables.terminal.tables import kernel_lines, names_of, rest_line, tree_lines
    from kernel_tables.units import CPU_ONLY_NOTE, time_heading

    width, command = get_terminal_size().columns, f"kernel-tables {{}} {shlex.quote(str(capture))} --top 0"
    if trace.range_names:
        command = command.format(f"ranges --tree{f' --under {under}' if under else ''}")
        lines = tree_lines(trace, MOST_ROWS, width, under, all_by=command)
    else:
        kernels, heading = trace.kernels(), time_heading(trace.is_cpu_only)
        all_ns = int(kernels["total_ns"].sum())
        lines = kernel_lines(kernels.head(MOST_ROWS), all_ns, width, heading, names_of(kernels))
        lines += rest_line(max(len(kernels) - MOST_ROWS, 0), "kernels", None, width, heading, command.format("kernels"))
    encoding = sys.stderr.encoding or "utf-8"
    print(lines.encode(encoding, "replace").decode(encoding), file=sys.stderr)
    if trace.is_cpu_only:
        _say(CPU_ONLY_NOTE)
    if time := step_time(Scope(trace, step_name)):
        _say(time.sentence)


def _losses(trace: Trace, step_name: str) -> list[Diagnosis]:
    """Where time is lost, the largest first."""
    from kernel_tables.diagnosis.diagnose import diagnose

    return [finding for finding in diagnose(trace, step_name) if not finding.abstained][:MOST_LOSSES]


def _say_all(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        _say(sentence)


def _say(sentence: str) -> None:
    print(f"kernel-tables record: {visible(' '.join(sentence.split()))}", file=sys.stderr, flush=True)


def program_text(arguments: Sequence[str]) -> str:
    """The command line. Values that look like secrets, or whose options do, are hidden; absolute paths are cut to their
    last name."""
    text = " ".join(_cleaned(arguments))
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _cleaned(arguments: Sequence[str]) -> Iterator[str]:
    hide_next = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        is_option = argument.startswith("-")
        if hide_next and not is_option:
            yield HIDDEN
        elif equals and SECRET.search(name):
            yield f"{name}={HIDDEN}"
        else:
            yield _without_place(argument)
        hide_next = is_option and not equals and bool(SECRET.search(argument))


def _without_place(argument: str) -> str:
    name, equals, value = argument.partition("=")
    if SECRET_VALUE.search(value if equals else argument):
        return f"{name}={HIDDEN}" if equals else HIDDEN
    argument = ADDRESS.sub(rf"\1{HIDDEN}@", argument)
    if "://" in argument:
        return argument
    if equals:
        return f"{name}={_last_name(value)}"
    return _last_name(argument)


def _last_name(text: str) -> str:
    """The last name of an absolute path; other texts unchanged."""
    return PurePath(text).name if PATH.match(text) else text
