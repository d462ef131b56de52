"""The command: kernel-tables record -- PROGRAM, report|ranges|kernels|classes|check|... CAPTURE, names NAME.

Only modules that parse arguments are imported here, so that --help and wrong arguments are answered at once.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from kernel_tables import errors, version, whole_files
from kernel_tables.commands import check, communication, diagnose, diff, host, names, record, report, shared
from kernel_tables.commands.table_commands import TABLES, add_table_options, write_tables

BAD_INPUT, INTERRUPTED = 2, 130
REQUIRED_PACKAGES = ("numpy", "pandas", "pyarrow", "adbc_driver_sqlite", "jinja2")
# The help lists the commands in this order: FIRST_MODULES, TABLE_SUMMARIES, OTHER_MODULES.
FIRST_MODULES = (record, report)
OTHER_MODULES = (diagnose, names, check, diff, host, communication)
TABLE_SUMMARIES = {
    "ranges": "one row per range name: instances, kernels, memory operations and their times, inner ranges included",
    "kernels": "one row per range path and kernel: class, launches, total, mean, shortest and longest time",
    "classes": "one row per class of kernels: launches, GPU time and its share, and kernels of unknown class",
    "trace": "a timeline for ui.perfetto.dev: ranges, launches and kernels, each kernel with its range path",
}


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0; 1 for findings or differences; 2 for bad input; 130 after Ctrl-C; of `record`, its own."""
    parser = command_parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help(sys.stderr)
        return BAD_INPUT
    try:
        return _run(parser.parse_args(arguments))
    except errors.TraceError as error:
        shared.say(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of standard output has seen enough; the flush at exit must not raise again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        file = error.filename2 or error.filename or "standard output"
        shared.say(f"{file}: {error.strerror or error}; check the path and the space on its disk")
    return BAD_INPUT


class Parser(argparse.ArgumentParser):
    """A parser that names the command, or the value of an option, that was probably meant."""

    def error(self, message: str) -> NoReturn:
        match = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if match:
            for likely in get_close_matches(match[1], re.findall(r"[\w-]+", match[2]), n=1):
                message += f"; did you mean {likely}?"
        super().error(message)


class PrintJsonSchema(argparse.Action):
    """Prints the JSON schema of the tables of all commands, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: object, values: object, option: str | None = None):
        import json

        from kernel_tables.columns import json_schema

        print(json.dumps(json_schema(), ensure_ascii=False, indent=1))
        parser.exit()


def command_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m kernel_tables" if Path(sys.argv[0]).name == "__main__.py" else "kernel-tables",
        description="Where the time of a PyTorch program goes, by modules and ranges: records the program, or reads a"
        " capture of Nsight Systems or torch.profiler.",
        epilog="Begin with: kernel-tables record -- python train.py. Times are in the unit of the column's name, mostly"
        " nanoseconds; in a terminal in readable units. Bad input: one line on standard error and exit status 2.",
    )
    parser.add_argument("--version", action="version", version=f"kernel-tables {version.__version__}")
    schema_help = "print the JSON schema of every table, and its version"
    parser.add_argument("--print-json-schema", action=PrintJsonSchema, nargs=0, help=schema_help)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_module_commands(commands, FIRST_MODULES)
    for name, summary in TABLE_SUMMARIES.items():
        command = commands.add_parser(name, help=summary, description=summary)
        shared.add_captures(command)
        _add_table_options(command, name)
    _add_module_commands(commands, OTHER_MODULES)
    return parser


def _add_module_commands(commands: argparse._SubParsersAction, modules: Sequence[ModuleType]) -> None:
    """Adds the commands that are modules, each by the name of its module."""
    for module in modules:
        name = module.__name__.rpartition(".")[2]
        command = commands.add_parser(name, help=module.SUMMARY, description=module.SUMMARY)
        module.add_options(command)
        command.set_defaults(run=module.run)


def _add_table_options(command: argparse.ArgumentParser, name: str) -> None:
    add_output = shared.add_trace_output if name == "trace" else shared.add_output
    add_output(command)
    default = "measure, if there is such a range" if name == "trace" else "everything"
    command.add_argument("--under", metavar="NAME", help=f"only inside ranges of this name (default: {default})")
    if name in TABLES:
        add_table_options(command, name)
    if name != "ranges":
        shared.add_classes(command)


def _require_packages() -> None:
    """Raises TraceError if a package that the commands need is not installed."""
    missing = [name for name in REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        advice = "`pip install .` in the checkout installs what this command needs"
        raise errors.TraceError(f"{', '.join(missing)}: not installed for {sys.executable}; {advice}")


def _run(options: argparse.Namespace) -> int:
    _require_packages()
    if "run" in options:
        return options.run(options)
    shared.require_output(options, *options.captures)
    with shared.open_traces(options) as traces:
        if options.command == "trace":
            from kernel_tables.views.perfetto import write_timeline

            with whole_files.written_whole(options.output) as partial:
                write_timeline(traces, partial, options.under, compressed=options.output.suffix == ".gz")
        else:
            _import_while_reading(traces)
            write_tables(traces, options)
    return 0


def _import_while_reading(traces) -> None:
    """Reads the columns, and imports pandas meanwhile. Reading does not hold the interpreter's lock."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: [trace.columns for trace in traces])
        import kernel_tables.views.tables  # noqa: F401

        reading.result()


if __name__ == "__main__":
    sys.exit(main())
