"""The command that tells where a program loses time on the GPU: kernel-tables diagnose CAPTURE."""

from __future__ import annotations

import argparse
from pathlib import Path
from shutil import get_terminal_size

from kernel_tables.commands.options import (
    add_capture,
    add_output,
    add_step_name,
    is_for_a_person,
    opened_trace,
    print_safely,
    require_output,
    say_rank,
    write,
)

SUMMARY = "where time is lost: evidence, the most that fixing it saves, advice, and the rules that lack data"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_capture(parser)
    add_output(parser)
    add_step_name(parser)
    parser.add_argument(
        "--counters",
        type=Path,
        metavar="FILE",
        help="ncu output of the same program (ncu --csv --page raw --print-units base)",
    )
    parser.add_argument(
        "--rules", type=Path, metavar="FILE", help="custom rules, in TOML; tried after the built-in rules"
    )


def run(options: argparse.Namespace) -> int:
    require_output(options, options.capture)
    say_rank(options.capture)
    from kernel_tables.counters.reading import read_counters
    from kernel_tables.diagnosis.diagnose import as_json, as_table, diagnose
    from kernel_tables.diagnosis.own_rules import rules_of_file
    from kernel_tables.output import format_of, write_text
    from kernel_tables.terminal.findings import finding_lines

    own = rules_of_file(options.rules) if options.rules else ()
    with opened_trace(options.capture, options) as trace:
        counters = read_counters(options.counters) if options.counters else None
        found = diagnose(trace, options.step_name, own, counters)
    if is_for_a_person(options):
        print_safely(finding_lines(found, get_terminal_size().columns))
    elif (options.format or format_of(options.output)) == "json":
        write_text(as_json(found), options.output)
    else:
        write(as_table(found), options)
    return 0
