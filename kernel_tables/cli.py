"""The command line: `kernel-tables record -- PROGRAM`, `kernel-tables kernels CAPTURE`, `kernel-tables names NAME`, ...

Only what parses arguments is imported at first, so that --help and wrong arguments are answered at once.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from kernel_tables import files, output, text, verdict, version
from kernel_tables.errors import ERROR, IMPOSSIBLE, Finding, ImpossibleCapture, TraceError
from kernel_tables.names import name_facts
from kernel_tables.output import say
from kernel_tables.record.command import add_options, add_window, record

if TYPE_CHECKING:
    from kernel_tables.profile import Profile
CAPTURE = "an nsys SQLite export, a capture of `record`, or JSON of torch.profiler; gzipped or not"
FILE, FLAG, TEXTS = {"type": Path, "metavar": "FILE"}, {"action": "store_true"}, {"action": "append", "default": []}
CAPTURES = FILE | {"dest": "captures", "metavar": "CAPTURE"}
# Arguments by name: keywords of argparse and the help. Those of one command have its name after theirs.
ARGUMENTS: dict[str, tuple[dict, str]] = {
    "capture": (CAPTURES | {"nargs": 1}, CAPTURE),
    "captures": (CAPTURES | {"nargs": "+"}, f"{CAPTURE}; several: ranks of one run, rank 0 first"),
    "captures of diff": (CAPTURES | {"nargs": 2}, f"{CAPTURE}: before, then after"),
    "name": ({"metavar": "NAME"}, "the full name of a kernel, as `kernels --format csv` prints it"),
    "--format": ({"choices": ("text", *output.FORMATS)}, "default: by FILE's suffix, or text in a terminal, else csv"),
    "--output": (FILE, "write to FILE (default: standard output)"),
    "--output of trace": (FILE | {"required": True}, "write to FILE, compressed if it ends in .gz"),
    "--output of report": (FILE, "write to FILE (default: CAPTURE's name with .html, in this folder)"),
    "--class": (
        TEXTS | {"dest": "classes", "metavar": "CLASS=REGEX"},
        "a custom class for kernels whose full name matches, before the built-in rules; repeatable",
    ),
    "--step-name": ({"default": "step", "metavar": "NAME"}, "the range of one step (default: step)"),
    "--under": ({"metavar": "NAME"}, "only in ranges of this name (default: all; of trace: measure, if there is one)"),
    "--ranks": (FLAG, "rows by rank, in text one table per rank (the default for several captures)"),
    "--top": ({"type": int, "metavar": "N"}, "the first N rows, 0 for all (default: all, in a terminal 40)"),
    "--tree": (FLAG, "one row per range path, inner ranges below outer ranges"),
    "--steps": ({"type": int, "metavar": "N"}, "how many measured steps each process should have"),
    "--rules": (FILE, "custom rules, in TOML; tried after the built-in rules"),
    "--fail-on": (
        TEXTS | {"metavar": "RULE|PERCENT"},
        "exit status 1 if this rule reports a finding, or one costs this percent of a step or more; repeatable",
    ),
    "commands": (
        {"dest": "commands", "nargs": 2, "metavar": "COMMAND"},
        "each quoted: 'python train.py' 'python train.py --compile'",
    ),
    "program": (
        {"dest": "program", "nargs": argparse.REMAINDER, "metavar": "-- PROGRAM ..."},
        "the program and its arguments",
    ),
    "--processes": ({"type": int, "default": verdict.PROCESSES, "metavar": "N"}, "of each side (default: %(default)s)"),
    "--budget": ({"type": float, "default": inf, "metavar": "MINUTES"}, "start no process that would end later"),
    "--fail-on of compare": (
        {"default": "nothing", "metavar": "VERDICT"},
        "exit status 1 if the second command is slower, faster, or changed, maybe by a percentage: 'slower 2%%'",
    ),
    "--precision": (
        {"choices": ("fp32", "tf32", "bf16"), "default": "tf32"},
        "the lowest precision of products that remedies may use (default: tf32)",
    ),
    "--all": (FLAG, "list names that are the same, too"),
    "--tolerance": ({"type": float, "default": 1.0, "metavar": "PERCENT"}, "smaller changes are none (default: 1)"),
    "--collectives": (FLAG, "by collective: its bytes, times and bandwidth"),
}  # fmt: skip
COMMANDS = {  # in the order of the help: the arguments, beside the format and the output, and what the command does
    "record": ("program", "run a Python program unchanged, record some of its steps, and print where the time goes"),
    "compare": ("commands --processes --budget --fail-on",
        "whether the steps of one command are faster than those of another, from processes of both in turns"),
    "try": ("program --precision --processes --budget",
        "record a program, apply what may help from inside it, unchanged, and measure whether it does"),
    "report": ("capture --step-name --class", "an HTML page of a capture, which needs no network"),
    "ranges": ("captures --under --ranks --top --tree", "time by range name, inner ranges included"),
    "kernels": ("captures --under --ranks --top --class", "launches and times by range path and kernel"),
    "classes": ("captures --under --ranks --top --class", "launches and times by class of kernels"),
    "trace": ("captures --under --class", "a timeline for ui.perfetto.dev: ranges, launches and kernels"),
    "diagnose": ("capture --step-name --rules --fail-on", "where time is lost, what a fix saves, and how"),
    "names": ("name --class", "the short name of a kernel, its class, and the rule that decided the class"),
    "check": ("captures --steps --step-name",
        "whether a capture is complete; exit status 1 if any finding is an error"),
    "diff": ("captures --step-name --tolerance --all",
        "what differs in two captures; exit status 1 if anything does"),
    "host": ("capture --step-name", "time of CUDA calls, operating system calls and sampled functions"),
    "communication": ("captures --step-name --class --collectives", "time of a run on several GPUs by rank and step"),
}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Runs the command, and returns its exit status: 0; 1 for findings or differences; 2 for bad input; 130 after
    Ctrl-C; for `record`, that of the program."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = command_parser()
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    try:
        options = parser.parse_args(arguments)
        if options.command == "record":
            return record(options)
        return getattr(Command(options), {"try": "compare"}.get(options.command, options.command))()
    except TraceError as error:
        say(str(error))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of standard output has seen enough; the flush at exit must not raise again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        file = error.filename2 or error.filename or "standard output"
        say(f"{file}: {error.strerror or error}; check the path and the space on its disk")
    return 2


def command_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kernel-tables",
        description="Where the time of a PyTorch program goes, by modules and ranges: records the program, or reads a"
        " capture of Nsight Systems or torch.profiler.",
        epilog="Begin with: kernel-tables record -- python train.py. Times are in the unit of the column's name, mostly"
        " nanoseconds; in a terminal in readable units. Bad input: one line on standard error and exit status 2.",
    )
    parser.add_argument("--version", action="version", version=f"kernel-tables {version.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (arguments, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        common = {"record": "", "report": "--output", "trace": "--output"}.get(name, "--format --output")
        for argument in f"{arguments} {common}".split():
            keywords, explanation = ARGUMENTS.get(f"{argument} of {name}") or ARGUMENTS[argument]
            flags = [argument] if argument[0] == "-" or argument == "name" else []  # dest names captures
            flags += ["-o"] if argument == "--output" else []
            command.add_argument(*flags, **keywords, help=explanation)
        if name in ("compare", "try"):
            add_window(command, skip=10, steps=30)
        if name == "record":
            add_options(command)
    return parser


class Command:
    """A command with its options. The method with the name of a command runs it, and returns the exit status."""

    def __init__(self, options: argparse.Namespace):
        """Raises TraceError if the output cannot be written, or would overwrite a capture."""
        self.options, self.paths = options, getattr(options, "captures", [])
        if options.command == "report" and options.output is None:
            options.output = Path(f"{self.paths[0].name.partition('.')[0] or 'capture'}.html")
        self.losses: list[tuple[str, Finding]] = []  # by name of the capture, once captures are read
        chosen = getattr(options, "format", None)
        suffix = options.output.suffix.removeprefix(".").lower() if options.output else ""
        self.format = chosen or (suffix if suffix in output.FORMATS else "csv")
        self.wants_text = chosen == "text" or (chosen is None and options.output is None and sys.stdout.isatty())
        self.width = get_terminal_size((120, 24)).columns
        if options.output is not None:
            files.require_no_capture(options.output, self.paths)
            if not options.output.absolute().parent.is_dir():
                raise TraceError(f"{options.output}: there is no such folder; name another with -o")

    @contextmanager
    def _profiles(self) -> Iterator[list[Profile]]:
        """The profiles of the captures, with custom classes. Prints notes on them, and what makes figures wrong."""
        from kernel_tables.check import losses
        from kernel_tables.profile import read

        with ExitStack() as stack:
            profiles = []
            for path in self.paths:
                profiles.append(stack.enter_context(read(path, self._classes())))
                say(*(f"{path.name}: {note}" for note in profiles[-1].notes))
            step_name = getattr(self.options, "step_name", "step")
            if step_name != "step":  # the default, which a capture may lack
                for one in profiles:
                    one.require_range(step_name)
            self.losses = [(one.capture.path.name, loss) for one in profiles for loss in losses(one, step_name)]
            if not self.wants_text:  # else they are a part of the text
                say(*(f"{name}: {loss.message}" for name, loss in self.losses))
            yield profiles

    def _classes(self) -> list[dict[str, str]]:
        """The custom classes as rules. Raises TraceError for a text that is not CLASS=REGEX."""
        rules = []
        for rule in getattr(self.options, "classes", ()):
            name, _, pattern = rule.partition("=")
            if not (name and pattern):
                raise TraceError(f"--class {rule!r}: expected CLASS=REGEX, such as gemm=my_matmul.*")
            rules.append({"class": output.visible(name), "pattern": pattern})
        return rules

    def _show(self, lines: str) -> None:
        """Writes a text, with what makes its figures wrong: above advice, below tables."""
        lost = self._sentences(self.losses)
        is_above = lost and self.options.command == "diagnose"
        output.write_text(f"{lost}\n{lines}" if is_above else lines + lost, self.options.output)

    def _sentences(self, findings: list[tuple[str, Finding]]) -> str:
        """Findings of `check`, with the names of captures if there are several, as text."""
        sentences = [(name, f"{one.severity} {one.code}: {one.message}") for name, one in findings]
        named = [f"{name}: {sentence}" if name and len(self.paths) > 1 else sentence for name, sentence in sentences]
        return text.sentence_lines(named, self.width)

    def _write(self, table, as_text: Callable[[], str] | None = None) -> None:
        """Writes a table to the output in its format, or as text: aligned, or this."""
        if self.wants_text:
            self._show(as_text() if as_text else text.table_lines(table, self.width))
        else:
            output.write_table(table, self.options.output, self.format)

    # The commands

    def compare(self) -> int:
        """Runs `compare` or `try`. The status is 1 if --fail-on says so, and 130 if Ctrl-C ended it early."""
        from kernel_tables.record import compare

        run = compare.try_remedies if self.options.command == "try" else compare.compare_commands
        table, in_words, status = run(self.options)
        self._write(table, lambda: in_words)
        return status

    def ranges(self) -> int:
        """Writes the table of the command: in text one table per rank, else rows with a column `rank`."""
        from kernel_tables import tables

        options, is_tree = self.options, getattr(self.options, "tree", False)
        top = options.top if options.top is not None else text.ROWS_IN_A_TERMINAL if self.wants_text else 0
        with self._profiles() as profiles:
            parts = [(None, profiles[0], None)]
            if options.ranks or len(profiles) > 1:
                from kernel_tables.ranks import ranks_of

                parts = [(rank.number, rank.profile, rank.process) for rank in ranks_of(profiles)]
            if self.wants_text:
                notes = [text.CPU_ONLY_NOTE] if any(profile.is_cpu_only for profile in profiles) else []
                lines = "\n".join(self._rank_lines(*part, top) for part in parts)
                self._show(lines + text.sentence_lines(notes, self.width))
                return 0
            found = [profile.table(options.command, options.under, process, is_tree) for _, profile, process in parts]
            shown = [{name: column[: top or None] for name, column in table.items()} for table in found]
            self._write(tables.joined([rank for rank, *_ in parts], shown))
        return 0

    kernels = classes = ranges

    def _rank_lines(self, rank: int | None, profile: Profile, process: int | None, top: int) -> str:
        """The first rows as text, below a tree of the whole capture with the time of a step."""
        name, under = self.options.command, self.options.under
        heading = "" if rank is None else f"rank {rank}\n"
        if name == "ranges" and not profile.capture.ranges.names:
            return f"{heading}no range was recorded; `kernel-tables kernels` shows what ran\n"
        if name != "ranges" or not self.options.tree:
            return heading + text.ranking_lines(name, profile, top, self.width, under, process)
        lines = text.tree_lines(profile, top, self.width, under, process)
        if under is None and process is None:
            from kernel_tables.steps import Scope, step_time

            time = step_time(Scope(profile, "step"))
            lines += text.sentence_lines([time.sentence] if time and time.steps else [], self.width)
        return heading + lines

    def trace(self) -> int:
        from kernel_tables.perfetto import write_timeline

        with self._profiles() as profiles:
            write_timeline(profiles, self.options.output, self.options.under)
        return 0

    def report(self) -> int:
        with self._profiles() as (profile,):
            from kernel_tables.page.page import write_page

            write_page(profile, self.options.output, self.options.step_name)
        print(self.options.output)
        say(f"open {self.options.output.absolute().as_uri()}")
        return 0

    def diagnose(self) -> int:
        """Writes the findings. The status is 1 if one is as --fail-on says."""
        from kernel_tables import diagnose, steps

        options = self.options
        custom_rules = diagnose.rules_of_file(options.rules) if options.rules else ()
        codes = (*diagnose.CODES, *(rule.code for rule in custom_rules))
        limits = [limit for limit in options.fail_on if limit not in codes]
        for limit in limits:
            if not re.fullmatch(r"(100|\d\d?)(\.\d+)?%?", limit):
                expected = f"neither a percentage nor a rule; the rules are {', '.join(codes)}"
                raise TraceError(f"--fail-on {limit}: {expected}")
        least_percent = min((float(limit.removesuffix("%")) for limit in limits), default=inf)
        with self._profiles() as (profile,):
            scope = steps.Scope(profile, options.step_name)
            findings = diagnose.diagnose(scope, options.step_name, custom_rules)
            if self.format == "json" and not self.wants_text:  # with evidence as objects, not as text
                output.write_text(output.as_json([vars(finding) for finding in findings]), options.output)
            else:
                facts = self.width, steps.step_time(scope), scope.noun
                self._write(diagnose.as_table(findings), lambda: text.finding_lines(findings, *facts))
        failing = [one for one in findings if one.code in options.fail_on or (one.gain_percent or 0) >= least_percent]
        failing = [one for one in failing if not one.abstained]
        say(*(f"--fail-on: {one.code}, {one.gain_percent:.1f} % of a step" for one in failing))
        return int(bool(failing))

    def names(self) -> int:
        facts = name_facts(self.options.name, self._classes())
        sentences = [f"{about}: {value} ({reason})" for about, value, reason in zip(*facts.values(), strict=True)]
        self._write(facts, lambda: text.sentence_lines(sentences, self.width))
        return 0

    def check(self) -> int:
        """Writes what is wrong or odd, with several captures by file. The status is 1 for an error."""
        from kernel_tables.profile import read
        from kernel_tables.ranks import findings_of_ranks, ranks_of

        options, found = self.options, []
        with ExitStack() as stack:
            profiles = []
            for path in self.paths:
                try:
                    profiles.append(stack.enter_context(read(path)))
                    found += [(path.name, one) for one in profiles[-1].check(options.steps, options.step_name)]
                except ImpossibleCapture as error:  # so damaged that it cannot be opened
                    found += [(path.name, one) for one in error.findings]
            if not any(one.code in IMPOSSIBLE for _, one in found):
                found += [("", one) for one in findings_of_ranks(ranks_of(profiles), options.step_name)]
        columns = {"capture": [name for name, _ in found]} if len(self.paths) > 1 else {}
        columns |= {key: [getattr(one, key) for _, one in found] for key in ("severity", "code", "message")}
        self._write(columns, lambda: self._sentences(found) or "no problems found\n")
        return int(any(one.severity == ERROR for _, one in found))

    def diff(self) -> int:
        """Writes what differs. The status is 1 if anything does."""
        from kernel_tables import diff

        tolerance = self.options.tolerance / 100
        if not 0 <= tolerance < inf:
            raise TraceError(f"--tolerance {self.options.tolerance:g} is not a percentage of 0 or more")
        with self._profiles() as profiles:
            sides = [diff.side_of(profile, self.options.step_name) for profile in profiles]
        changes = diff.changes(*sides, tolerance=tolerance, everything=self.options.all)
        self._write(changes, lambda: text.change_lines(changes, tolerance, self.width))
        return int(any(change != diff.SAME for change in output.columns_of(changes)["change"]))

    def host(self) -> int:
        from kernel_tables import host

        with self._profiles() as (profile,):
            table = host.host_table(profile, step_name=self.options.step_name)
        self._write(table)
        say(*host.missing_sources(profile, table))
        return 0

    def communication(self) -> int:
        """Writes the times by rank and step, or by collective; says what is odd or unknown."""
        from kernel_tables import ranks

        with self._profiles() as profiles:
            of_run = ranks.ranks_of(profiles)
            make = ranks.collectives if self.options.collectives else ranks.communication
            table = make(of_run, self.options.step_name)
            findings = ranks.findings_of_ranks(of_run, self.options.step_name)
            rank_count = ranks.ranks_in_run(of_run)
        self._write(table)
        say(*(finding.message for finding in findings))
        columns = output.columns_of(table)
        if not columns["rank"] and not self.options.collectives:
            say(f"nothing ran on a device in a range '{self.options.step_name}'; --step-name names another")
        if len(of_run) < max(rank_count, 2):
            say("transfer and waiting cannot be separated with one rank or a part of them; give the captures of all")
        counts = columns.get("collectives", [1] * len(columns["bytes"]))
        if any(size is None and count for size, count in zip(columns["bytes"], counts, strict=True)):
            say("bytes and bandwidth are missing for collectives without a range 'bytes = …' or payloads of NCCL")
        return 0
