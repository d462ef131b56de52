"""The command that explains a kernel's name: kernel-tables names NAME."""

import argparse

from kernel_tables.commands.options import (
    TEXT,
    add_classes,
    add_output,
    own_classes,
    require_output,
    show,
    text_width,
    write,
)

SUMMARY = "what the name of a kernel means: its short name, its class with the rule that chose it, and its parts"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the full name of a kernel, as `kernels --full` prints it")
    add_output(parser)
    add_classes(parser)


def run(options: argparse.Namespace) -> int:
    require_output(options)
    from kernel_tables.kernel_names.explained import NameFact, as_text, explained

    rows = explained(options.name, own_classes(options))
    if options.format == TEXT or (options.output is None and options.format is None):
        show(as_text(rows, text_width()), options)
        return 0
    import pandas as pd

    write(pd.DataFrame(rows, columns=NameFact._fields), options)
    return 0
