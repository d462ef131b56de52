"""The command that compares two captures: kernel-tables diff BEFORE AFTER."""

import argparse

from kernel_tables.commands import shared

SUMMARY = "differences of two captures: GPU, versions, phases, parts, classes, kernels; exit status 1 if there are any"
DIFFERENT = 1


def add_options(parser: argparse.ArgumentParser) -> None:
    shared.add_capture(parser, "before", "after")
    shared.add_output(parser)
    shared.add_step_name(parser)
    tolerance_help = "a time that changes by less counts as the same (default: 1)"
    parser.add_argument("--tolerance", type=_percent, default=1.0, metavar="PERCENT", help=tolerance_help)
    parser.add_argument("--all", action="store_true", help="list names that are the same, too")


def run(options: argparse.Namespace) -> int:
    shared.require_output(options, options.before, options.after)
    from kernel_tables.comparison import SAME, changes, side_of

    sides = []
    for path in (options.before, options.after):
        with shared.open_trace(path, options) as trace:
            sides.append(side_of(trace, options.step_name))
    differences = changes(*sides, tolerance=options.tolerance / 100, everything=options.all)
    if shared.wants_text(options):
        from kernel_tables.terminal.findings import change_lines

        shared.show(change_lines(differences, options.tolerance / 100, shared.text_width()), options)
    else:
        shared.write(differences, options)
    return DIFFERENT if (differences["change"] != SAME).any() else 0


def _percent(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a percentage of 0 or more")
    return value
