"""The command that finds where a program loses time: kernel-tables diagnose CAPTURE."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import inf
from pathlib import Path

from kernel_tables.commands import shared
from kernel_tables.errors import TraceError

FAILED = 1
SUMMARY = "where time is lost: evidence, the most that fixing it saves, and advice"


def add_options(parser: argparse.ArgumentParser) -> None:
    shared.add_capture(parser)
    shared.add_output(parser)
    shared.add_step_name(parser)
    counters_help = "ncu output of the same program (ncu --csv --page raw --print-units base)"
    parser.add_argument("--counters", type=Path, metavar="FILE", help=counters_help)
    rules_help = "custom rules, in TOML; tried after the built-in rules"
    parser.add_argument("--rules", type=Path, metavar="FILE", help=rules_help)
    fail_help = "exit status 1 if this rule reports a finding, or one costs this percent of a step or more; repeatable"
    parser.add_argument("--fail-on", action="append", default=[], metavar="RULE|PERCENT", help=fail_help)
    parser.add_argument("--all", action="store_true", help="in text: list the rules that could not be checked, too")


def run(options: argparse.Namespace) -> int:
    shared.require_output(options, options.capture)
    from kernel_tables.diagnosis.custom_rules import rules_of_file
    from kernel_tables.diagnosis.diagnose import as_json, as_table, diagnose
    from kernel_tables.diagnosis.rules import CODES
    from kernel_tables.diagnosis.scope import Scope
    from kernel_tables.output import format_of, write_text

    custom_rules = rules_of_file(options.rules) if options.rules else ()
    codes = (*CODES, *(rule.code for rule in custom_rules))
    failing_codes = [text for text in options.fail_on if text in codes]
    failing_percent = min((_percentage(text, codes) for text in options.fail_on if text not in codes), default=inf)
    with shared.open_trace(options.capture, options) as trace:
        counters = None
        if options.counters:
            from kernel_tables.counters.reading import read_counters

            counters = read_counters(options.counters)
        scope = Scope(trace, options.step_name)
        findings = diagnose(scope, custom_rules=custom_rules, counters=counters)
        if shared.wants_text(options):
            from kernel_tables.diagnosis.step_time import step_time
            from kernel_tables.terminal.findings import finding_lines

            lines = finding_lines(
                findings, shared.text_width(), step_time(scope), lists_unchecked=options.all, noun=scope.noun
            )
            shared.show(lines, options)
        elif (options.format or format_of(options.output)) == "json":  # with evidence as objects, not as text
            write_text(as_json(findings), options.output)
        else:
            shared.write(as_table(findings), options)
    reported = [finding for finding in findings if not finding.abstained]
    failing = [
        finding for finding in reported if finding.code in failing_codes or finding.gain_percent >= failing_percent
    ]
    for finding in failing:
        shared.say(f"--fail-on: {finding.code}, {finding.gain_percent:.1f} % of a step")
    return FAILED if failing else 0


def _percentage(text: str, codes: Sequence[str]) -> float:
    """The percentage in a text of --fail-on. TraceError if it is none, which names the `codes` of all rules."""
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise TraceError(f"--fail-on {text}: neither a percentage nor a rule; the rules are {', '.join(codes)}")
    return value
