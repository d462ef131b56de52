"""The ATen operations of a process while they run: their names, and the lines of Python that called them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import range_marks
from cs336_model.program.module_search import PACKAGE_FOLDERS
from cs336_model.program.spec import RunSpec
from cs336_model.program.variants.effects import is_compiled

# files in these folders are never a program's own lines
LIBRARY_FOLDERS = tuple(f"{Path(package.__file__).parent}/" for package in (torch, range_marks))
OperationContext = Callable[[str, str | None], AbstractContextManager]


class Operations(TorchDispatchMode):
    """Opens `context(name, line)` around every operation, also of the backward pass, on autograd's threads."""

    def __init__(self, context: OperationContext) -> None:
        super().__init__()
        self._context = context

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: otherwise PyTorch imports its compiler, which takes seconds. No compiled code runs in this mode."""
        return False

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        with self._context(operation._schema.name, calling_line()):
            return operation(*args, **(kwargs or {}))


@contextmanager
def followed_operations(spec: RunSpec, context: OperationContext | None) -> Iterator[None]:
    """A with block in which `context`, if given, is opened around every operation. Not for a compiled model: under a
    dispatch mode, it would run without being compiled."""
    if context is None or is_compiled(spec):
        yield
        return
    with Operations(context):
        yield


def calling_line() -> str | None:
    """The line of the program that called the current operation, such as "cs336_model/model/transformer.py:34": the
    innermost outside PyTorch and range_marks. None if there is none, as on autograd's threads."""
    frame = sys._getframe().f_back.f_back  # beyond __torch_dispatch__; None on a thread of autograd
    while frame is not None:
        if path := _program_path(frame.f_code.co_filename):
            return f"{path}:{frame.f_lineno}"
        frame = frame.f_back
    return None


@cache
def _program_path(file: str) -> str | None:
    """The published path of a file; None for files of PyTorch and range_marks, and for code without a file."""
    return None if file.startswith((*LIBRARY_FOLDERS, "<")) else published_path(file)


def published_path(file: str) -> str:
    """The path of a source file without the folders of this machine. It begins below the folder of installed packages,
    or with cs336_model ("cs336_model/model/transformer.py"); for any other file, it is only the name."""
    parts = PurePath(file).parts
    for index, part in enumerate(parts):
        if part in PACKAGE_FOLDERS:
            return "/".join(parts[index + 1 :])
    if "cs336_model" in parts:
        last = len(parts) - 1 - parts[::-1].index("cs336_model")
        return "/".join(parts[last:])
    return parts[-1] if parts else ""
