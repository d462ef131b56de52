"""The ranges that a program opens itself, by record_function, torch.cuda.nvtx or the package nvtx.

Each is reported to a listener, and translated: nsys sees no record_function and PyTorch's profiler no NVTX, so what the
program opens by one becomes a range of the other too. Ranges of NVTX domains that are opened through a Domain object
are not seen by PyTorch's profiler.
"""

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch.autograd.profiler import record_function

from kernel_tables.kineto.names import encoded
from range_marks.uncompiled import uncompiled

OPTIMIZER_STEP = "Optimizer.step#"  # how the range begins that PyTorch opens around the step of an optimizer
PLAIN_PUSH, PLAIN_POP = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop


class Listener:
    """Is called for every range of the program: before it opens, and after it has closed; `optimizer` is the one whose
    step has ended with it. This listener ignores them."""

    def entering(self, name: str, *, of_torch: bool) -> None: ...

    def left(self, name: str, optimizer: Any = None) -> None: ...


class ProgramRanges:
    """Listens to this process's ranges, and translates them: to NVTX with `to_nvtx`, else to ranges of PyTorch's
    profiler, but only while `is_recording`, so that a profile by the program itself has only its ranges."""

    def __init__(
        self, listener: Listener | None, *, to_nvtx: bool, is_recording: Callable[[], bool] = lambda: True
    ) -> None:
        self._listener = Listener() if listener is None else listener
        self._to_nvtx, self._is_recording = to_nvtx, is_recording
        self._thread = _OpenRanges()
        # by the name of their ranges, in order of their first steps
        self._optimizers: dict[str, list[weakref.ref]] = {}
        self._plain = record_function.__enter__, record_function.__exit__

    def watch_torch(self) -> None:
        """Listens to the ranges that go through PyTorch, from now on."""
        self.watch_record_function()
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

    def watch_record_function(self) -> None:
        """The same only for record_function."""
        self._plain = record_function.__enter__, record_function.__exit__

        @wraps(record_function.__enter__)
        def enter(range_: record_function) -> record_function:
            caller = sys._getframe(1)
            package = caller.f_globals.get("__name__", "").partition(".")[0]
            self._listener.entering(range_.name, of_torch=package == "torch")
            optimizer = caller.f_locals.get("self") if range_.name.startswith(OPTIMIZER_STEP) else None
            written = self._written(range_.name, optimizer)
            self._thread.innermost.append(_OpenRange(range_, written, optimizer))
            return self._enter(range_, written)

        @wraps(record_function.__exit__)
        def exit_(range_: record_function, *error: Any) -> Any:
            opened = self._thread.innermost
            has_failed = any(part is not None for part in error)
            optimizer = next((entry.optimizer for entry in opened if entry.range_ is range_ and not has_failed), None)
            opened[:] = [entry for entry in opened if entry.range_ is not range_]
            try:
                return self._exit(range_, *error)
            finally:
                self._listener.left(range_.name, optimizer)

        record_function.__enter__, record_function.__exit__ = uncompiled(enter), uncompiled(exit_)

    def leave_record_function(self) -> None:
        """Restores PyTorch's record_function."""
        record_function.__enter__, record_function.__exit__ = self._plain

    @contextmanager
    def outside_optimizer(self) -> Iterator[None]:
        """Inside the block, the range of the optimizer's step on this thread is closed, if it is the innermost."""
        range_, written, _ = next(iter(self._thread.innermost[-1:]), (None, "", None))
        if range_ is None or not range_.name.startswith(OPTIMIZER_STEP):
            yield
            return
        self._exit(range_, None, None, None)
        try:
            yield
        finally:
            self._enter(range_, written)

    def _written(self, name: str, optimizer: Any) -> str:
        """The name that is recorded of a range: the step of the second Adam is "Optimizer.step#Adam 2.step"."""
        if optimizer is None:
            return name
        alike = [known for known in self._optimizers.get(name, []) if known() is not None]
        if all(known() is not optimizer for known in alike):
            alike.append(weakref.ref(optimizer))
        self._optimizers[name] = alike
        number = next(number for number, known in enumerate(alike, start=1) if known() is optimizer)
        return name if number == 1 else f"{name.removesuffix('.step')} {number}.step"

    def _enter(self, range_: record_function, written: str) -> record_function:
        enter, name = self._plain[0], range_.name
        if self._to_nvtx:
            PLAIN_PUSH(printable(written))
        if self._to_nvtx or not self._is_recording():
            return enter(range_)
        range_.name = encoded(written)
        try:
            return enter(range_)
        finally:
            range_.name = name

    def _exit(self, range_: record_function, *error: Any) -> Any:
        try:
            return self._plain[1](range_, *error)
        finally:
            if self._to_nvtx:
                PLAIN_POP()

    def _pushing(self, plain: Callable, name_of: Callable[..., str]) -> Callable:
        @wraps(plain)
        def push(*args: Any, **kwargs: Any) -> Any:
            name = name_of(*args, **kwargs)
            self._listener.entering(name, of_torch=False)
            result = plain(*args, **kwargs)
            self._thread.opened.append((name, self._translated(name)))
            return result

        return uncompiled(push)

    def _popping(self, plain: Callable) -> Callable:
        @wraps(plain)
        def pop(*args: Any, **kwargs: Any) -> Any:
            result = plain(*args, **kwargs)
            self._close()
            return result

        return uncompiled(pop)

    def _annotating(self, plain: Callable) -> Callable:
        """nvtx.annotate as a decorator: without nsys it returns the function unchanged."""

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

    def _translated(self, name: str) -> record_function | None:
        """An open range of PyTorch's profiler that replaces one of NVTX; None if nsys records that itself."""
        if self._to_nvtx or not self._is_recording():
            return None
        return self._plain[0](record_function(encoded(name)))

    def _close(self) -> None:
        if self._thread.opened:  # else the program pops what was pushed before it could be heard
            name, translated = self._thread.opened.pop()
            if translated is not None:
                self._plain[1](translated, None, None, None)
            self._listener.left(name)


class _OpenRange(NamedTuple):
    """A range of record_function, its recorded name, and the optimizer whose step it is around, if it is."""

    range_: record_function
    written: str
    optimizer: Any


class _OpenRanges(threading.local):
    """The ranges that are open on the calling thread: those of record_function; and those of NVTX by name, with what
    stands for each."""

    def __init__(self) -> None:
        self.innermost: list[_OpenRange] = []
        self.opened: list[tuple[str, record_function | None]] = []


def printable(name: str) -> str:
    """The name as NVTX takes it: UTF-8 without NUL."""
    return name.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _message(annotation: Any) -> str:
    """The message of an nvtx.annotate, whether or not it records anything."""
    message = getattr(annotation, "init_args", ("",))[0]
    return message or ""
