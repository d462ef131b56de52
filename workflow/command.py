"""Runs a function as a command. The options of the command are the function's parameters. It ends with success, or with
one line on what is wrong, and leaves no temporary files."""

import argparse
import atexit
import errno
import gc
import inspect
import json
import os
import signal
import sys
from collections.abc import Callable
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from kernel_tables.errors import TraceError
from profile_grid.errors import OutsideError

NEXT_STEP = {errno.ENOSPC: "free some space", errno.EDQUOT: "free some of your quota"} | dict.fromkeys(
    (errno.EROFS, errno.EACCES, errno.EPERM), "make the folder writable, or run in a copy of the project"
)


def run_command(main: Callable[..., None]) -> None:
    """Runs `main` with the options of the command line. An error outside the project ends the process with status 1 and
    one line on standard error; a defect of the project shows its traceback. On a signal to terminate, every with block
    cleans up before the process ends."""
    atexit.register(gc.freeze)  # else Python looks at every object once more at its end: a tenth of a second
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit_on_signal)
    try:
        main(**options_of(main))
    except (OutsideError, TraceError) as error:
        sys.exit(str(error))
    except OSError as error:
        if (number := _error_number(error)) not in NEXT_STEP:
            raise
        verb = "open" if number in (errno.EACCES, errno.EPERM) else "write"
        path = error.filename or os.getcwd()
        sys.exit(f"cannot {verb} {path}: {os.strerror(number)}; {NEXT_STEP[number]}, then run snakemake again")


def options_of(function: Callable) -> dict[str, Any]:
    """The values of the parameters of `function`, read from the command line.
    Keyword-only parameters are options, others are positional. A parameter of type list[...] takes several values; one
    of type list or dict takes JSON. The help is the docstring of the function's module."""
    parser = argparse.ArgumentParser(
        description=inspect.getmodule(function).__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        _add_argument(parser, name, parameter)
    return vars(parser.parse_args())


def _add_argument(parser: argparse.ArgumentParser, name: str, parameter: inspect.Parameter) -> None:
    kind = parameter.annotation
    if get_origin(kind) in (Union, UnionType):
        kind = get_args(kind)[0]  # X of X | None
    is_optional = parameter.default is not parameter.empty
    settings: dict = {"default": parameter.default} if is_optional else {}
    if parameter.default not in (parameter.empty, None, ""):
        settings["help"] = "default: %(default)s"
    if get_origin(kind) is list:
        settings |= {"type": get_args(kind)[0], "nargs": "*" if is_optional else "+"}
    elif get_origin(kind) is Literal:
        settings |= {"type": type(get_args(kind)[0]), "choices": get_args(kind)}
    else:
        settings["type"] = json.loads if kind in (dict, list) else kind
    if parameter.kind is parameter.KEYWORD_ONLY:
        name = f"--{name.replace('_', '-')}"
        settings["required"] = not is_optional
    parser.add_argument(name, **settings)


def _error_number(error: OSError) -> int | None:
    """The error's number; Arrow's errors have only its text, in their message."""
    if error.errno is not None:
        return error.errno
    return next((number for number in NEXT_STEP if os.strerror(number) in str(error)), None)


def _exit_on_signal(number: int, frame: object) -> None:
    sys.exit(128 + number)
