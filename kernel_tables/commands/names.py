"""The command that explains a kernel's name: kernel-tables names NAME."""

import argparse

from kernel_tables.commands import shared

SUMMARY = "what the name of a kernel means: its short name, the rule that chose its class, and each piece of the name"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the full name of a kernel, as `kernels --full` prints it")
    shared.add_output(parser)
    shared.add_classes(parser)


def run(options: argparse.Namespace) -> int:
    shared.require_output(options)
    from kernel_tables.kernel_names.short import NameFact, as_text, name_facts

    rows = name_facts(options.name, shared.custom_classes(options))
    # Text is the default even if standard output is no terminal: wants_text would choose csv then.
    if options.format == shared.TEXT or (options.output is None and options.format is None):
        shared.show(as_text(rows, shared.text_width()), options)
        return 0
    import pandas as pd

    shared.write(pd.DataFrame(rows, columns=NameFact._fields), options)
    return 0
