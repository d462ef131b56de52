"""What others rely on: names of the library, subcommands and formats. None of them may be lost or renamed."""

import argparse
import importlib
import re
import subprocess
import sys

import pytest

import kernel_tables
from kernel_tables.__main__ import command_parser, main

SUBCOMMANDS = {
    "check", "classes", "communication", "diagnose", "diff", "host", "kernels", "names", "ranges", "record", "report",
    "trace",
}  # fmt: skip
WITH_FORMATS = SUBCOMMANDS - {"names", "record", "report", "trace"}


def commands() -> dict[str, argparse.ArgumentParser]:
    (found,) = [action for action in command_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return found.choices


@pytest.mark.parametrize("name", ["Trace", "recorded", "users_rules"])
def test_a_name_of_the_library_is_there_and_imported_on_its_first_use(name):
    program = (
        f"import sys, kernel_tables as k; before = set(sys.modules); k.{name}; print(len(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 3
    assert callable(getattr(kernel_tables, name)) and name in dir(kernel_tables)
    module = importlib.import_module(kernel_tables.MODULE_BY_NAME[name])
    assert getattr(module, name) is getattr(kernel_tables, name)


def test_a_name_that_the_library_lacks_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Tracee'"):
        kernel_tables.Tracee  # noqa: B018


def test_every_subcommand_is_there():
    assert set(commands()) == SUBCOMMANDS


@pytest.mark.parametrize("name", sorted(WITH_FORMATS))
def test_a_table_can_be_had_as_json(name):
    (formats,) = [action.choices for action in commands()[name]._actions if "--format" in action.option_strings]
    assert {"csv", "json", "md", "parquet"} <= set(formats)


def test_the_version_is_printed_and_is_that_of_the_library(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"kernel-tables {kernel_tables.__version__}\n"
    assert re.fullmatch(r"\d+\.\d+\.\d+", kernel_tables.__version__)


def test_without_arguments_the_help_is_shown_and_the_status_is_2(capsys):
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "print where the time goes" in err and "--version" in err
