"""The command that names and classifies one kernel: kernel-tables names NAME."""

import argparse

from kernel_tables.commands import shared

SUMMARY = "the short name of a kernel, its class, and the rule that decided the class"


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
