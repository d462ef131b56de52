"""The ranges that a program opens itself, by record_function, torch.cuda.nvtx or the package nvtx.

Each is told to a listener, and translated: nsys sees no record_function and PyTorch's profiler no NVTX, so what the
program opens by one becomes a range of the other too. Ranges of NVTX domains that are opened through a Domain object
are not seen by PyTorch's profiler.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, Protocol

import torch
from torch.autograd.profiler import record_function

from kernel_tables.kineto.names import encoded

PLAIN_PUSH, PLAIN_POP = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop


class Listener(Protocol):
    """What is told of every range of the program: before it opens, and after it has closed."""

    def entering(self, name: str, *, of_torch: bool) -> None: ...

    def left(self, name: str) -> None: ...


class ProgramRanges:
    """Listens to this process's ranges; `to_nvtx` says which way they are translated."""

    def __init__(self, listener: Listener, *, to_nvtx: bool) -> None:
        self._listener, self._to_nvtx = listener, to_nvtx
        self._thread = _Opened()

    def watch_torch(self) -> None:
        """From now on the ranges that go through PyTorch are heard."""
        self._watch_record_function()
        nvtx = torch.cuda.nvtx
        nvtx.range_push = self._pushing(nvtx.range_push, lambda message: str(message))
        nvtx.range_pop = self._popping(nvtx.range_pop)

    def watch_nvtx(self, nvtx: ModuleType) -> None:
        """The same for those of the package nvtx."""
        annotate = nvtx.annotate
        nvtx.push_range = self._pushing(nvtx.push_range, lambda message=None, *_, **__: message or "")
        nvtx.pop_range = self._popping(nvtx.pop_range)
        annotate.__enter__ = self._pushing(annotate.__enter__, lambda annotation: _message(annotation))
        annotate.__exit__ = self._popping(annotate.__exit__)
        annotate.__call__ = self._annotating(annotate.__call__)

    def _watch_record_function(self) -> None:
        plain_enter, plain_exit = record_function.__enter__, record_function.__exit__

        @wraps(plain_enter)
        def enter(self_: record_function) -> record_function:
            name = self_.name
            self._listener.entering(name, of_torch=_is_of_torch(sys._getframe(1)))
            if self._to_nvtx:
                PLAIN_PUSH(printable(name))
                return plain_enter(self_)
            self_.name = encoded(name)
            try:
                return plain_enter(self_)
            finally:
                self_.name = name

        @wraps(plain_exit)
        def exit_(self_: record_function, *error: Any) -> Any:
            try:
                return plain_exit(self_, *error)
            finally:
                if self._to_nvtx:
                    PLAIN_POP()
                self._listener.left(self_.name)

        record_function.__enter__, record_function.__exit__ = enter, exit_

    def _pushing(self, plain: Callable, name_of: Callable[..., str]) -> Callable:
        @wraps(plain)
        def push(*args: Any, **kwargs: Any) -> Any:
            name = name_of(*args, **kwargs)
            if self._to_nvtx:
                self._listener.entering(name, of_torch=False)
                self._thread.opened.append(name)
                return plain(*args, **kwargs)
            result = plain(*args, **kwargs)
            self._open(name)
            return result

        return push

    def _popping(self, plain: Callable) -> Callable:
        @wraps(plain)
        def pop(*args: Any, **kwargs: Any) -> Any:
            result = plain(*args, **kwargs)
            self._close()
            return result

        return pop

    def _annotating(self, plain: Callable) -> Callable:
        """nvtx.annotate as a decorator: without nsys around it gives the function back as it is."""

        @wraps(plain)
        def decorate(annotation: Any, function: Callable) -> Callable:
            name, called = _message(annotation) or function.__name__, plain(annotation, function)
            push, pop = self._pushing(lambda _: None, lambda name: name), self._popping(lambda: None)

            @wraps(function)
            def annotated(*args: Any, **kwargs: Any) -> Any:
                push(name)
                try:
                    return called(*args, **kwargs)
                finally:
                    pop()

            return annotated

        return decorate

    def _open(self, name: str) -> None:
        """A range of PyTorch's profiler, which is heard as such."""
        opened = record_function(name)
        opened.__enter__()
        self._thread.opened.append(opened)

    def _close(self) -> None:
        if self._thread.opened:  # else the program pops what was pushed before it could be heard
            opened = self._thread.opened.pop()
            if self._to_nvtx:
                self._listener.left(opened)
            else:
                opened.__exit__(None, None, None)


class _Opened(threading.local):
    """What stands for the NVTX ranges that are open on the calling thread."""

    def __init__(self) -> None:
        self.opened: list = []


def printable(name: str) -> str:
    """The name as NVTX takes it: UTF-8 without NUL."""
    return name.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _message(annotation: Any) -> str:
    """The message of an nvtx.annotate, whether or not it records anything."""
    given = getattr(annotation, "init_args", ("",))[0]
    return given or ""


def _is_of_torch(frame: Any) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] == "torch"
