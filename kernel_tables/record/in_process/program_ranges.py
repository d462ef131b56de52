"""The ranges that a program opens itself, by record_function, torch.cuda.nvtx or the package nvtx.

Each is reported to a listener, and translated, since nsys does not record record_function, nor PyTorch's profiler NVTX.
Neither is done for NVTX ranges that are opened by `range_start` or `start_range`, or through a Domain object.
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

OPTIMIZER_STEP = "Optimizer.step#"  # prefix of the range that PyTorch opens around the step of an optimizer
ORIGINAL_PUSH, ORIGINAL_POP = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop


class Listener:
    """Is called before each range of the program opens, and after it has closed. If the range was around the step of an
    optimizer, `after_range` gets the optimizer. This listener ignores the calls."""

    def before_range(self, name: str, *, of_torch: bool) -> None: ...

    def after_range(self, name: str, optimizer: Any = None) -> None: ...


class ProgramRanges:
    """Listens to this process's ranges, and translates them: to NVTX with `to_nvtx`, else to ranges of PyTorch's
    profiler, but only while `is_recording`, so that a profile by the program itself has only its ranges."""

    def __init__(
        self, listener: Listener | None, *, to_nvtx: bool, is_recording: Callable[[], bool] = lambda: True
    ) -> None:
        self._listener = Listener() if listener is None else listener
        self._to_nvtx, self._is_recording = to_nvtx, is_recording
        self._open_ranges = _OpenRanges()
        self._optimizers: dict[str, list[weakref.ref]] = {}  # by range name, in order of their first steps
        self._original_enter, self._original_exit = record_function.__enter__, record_function.__exit__

    def watch_torch(self) -> None:
        """Listens to the ranges that are opened through PyTorch, from now on."""
        self.watch_record_function()
        nvtx = torch.cuda.nvtx
        nvtx.range_push = self._push_wrapper(nvtx.range_push, lambda message: str(message))
        nvtx.range_pop = self._pop_wrapper(nvtx.range_pop)

    def watch_nvtx(self, nvtx: ModuleType) -> None:
        """Listens to the ranges of the package nvtx, from now on."""
        annotate = nvtx.annotate
        nvtx.push_range = self._push_wrapper(nvtx.push_range, lambda message=None, *_, **__: message or "")
        nvtx.pop_range = self._pop_wrapper(nvtx.pop_range)
        annotate.__enter__ = self._push_wrapper(annotate.__enter__, lambda annotation: _message(annotation))
        annotate.__exit__ = self._pop_wrapper(annotate.__exit__)
        annotate.__call__ = self._decorator_wrapper(annotate.__call__)

    def watch_record_function(self) -> None:
        """Listens to record_function, from now on."""
        self._original_enter, self._original_exit = record_function.__enter__, record_function.__exit__

        @wraps(record_function.__enter__)
        def enter(range_: record_function) -> record_function:
            caller = sys._getframe(1)  # of Optimizer.step, whose `self` is the optimizer, or of any code
            package = caller.f_globals.get("__name__", "").partition(".")[0]
            self._listener.before_range(range_.name, of_torch=package == "torch")
            optimizer = caller.f_locals.get("self") if range_.name.startswith(OPTIMIZER_STEP) else None
            recorded_name = self._recorded_name(range_.name, optimizer)
            self._open_ranges.record_functions.append(_OpenRecordFunction(range_, recorded_name, optimizer))
            return self._enter(range_, recorded_name)

        @wraps(record_function.__exit__)
        def exit_(range_: record_function, *error: Any) -> Any:
            record_functions = self._open_ranges.record_functions
            closed = next((opened for opened in record_functions if opened.range_ is range_), None)
            record_functions[:] = [opened for opened in record_functions if opened.range_ is not range_]
            has_failed = any(detail is not None for detail in error)
            try:
                return self._exit(range_, *error)
            finally:
                optimizer = None if closed is None or has_failed else closed.optimizer
                self._listener.after_range(range_.name, optimizer)

        record_function.__enter__, record_function.__exit__ = uncompiled(enter), uncompiled(exit_)

    def leave_record_function(self) -> None:
        record_function.__enter__, record_function.__exit__ = self._original_enter, self._original_exit

    @contextmanager
    def outside_optimizer(self) -> Iterator[None]:
        """Inside the block, the range of the optimizer's step on this thread is closed, if it is the innermost."""
        record_functions = self._open_ranges.record_functions
        innermost = record_functions[-1] if record_functions else None
        if innermost is None or not innermost.range_.name.startswith(OPTIMIZER_STEP):
            yield
            return
        self._exit(innermost.range_, None, None, None)
        try:
            yield
        finally:
            self._enter(innermost.range_, innermost.recorded_name)

    def _recorded_name(self, name: str, optimizer: Any) -> str:
        """The name with which a range is recorded: that of the second Adam is "Optimizer.step#Adam 2.step"."""
        if optimizer is None:
            return name
        references = [reference for reference in self._optimizers.get(name, []) if reference() is not None]
        if all(reference() is not optimizer for reference in references):
            references.append(weakref.ref(optimizer))
        self._optimizers[name] = references
        number = next(number for number, reference in enumerate(references, start=1) if reference() is optimizer)
        return name if number == 1 else f"{name.removesuffix('.step')} {number}.step"

    def _enter(self, range_: record_function, recorded_name: str) -> record_function:
        if self._to_nvtx:
            ORIGINAL_PUSH(nvtx_text(recorded_name))
        if self._to_nvtx or not self._is_recording():
            return self._original_enter(range_)
        name, range_.name = range_.name, encoded(recorded_name)
        try:
            return self._original_enter(range_)
        finally:
            range_.name = name

    def _exit(self, range_: record_function, *error: Any) -> Any:
        try:
            return self._original_exit(range_, *error)
        finally:
            if self._to_nvtx:
                ORIGINAL_POP()

    def _push_wrapper(self, original: Callable, name_of: Callable[..., str]) -> Callable:
        @wraps(original)
        def push(*args: Any, **kwargs: Any) -> Any:
            name = name_of(*args, **kwargs)
            self._listener.before_range(name, of_torch=False)
            result = original(*args, **kwargs)
            self._open_ranges.nvtx_ranges.append((name, self._open_translation(name)))
            return result

        return uncompiled(push)

    def _pop_wrapper(self, original: Callable) -> Callable:
        @wraps(original)
        def pop(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self._close_nvtx_range()
            return result

        return uncompiled(pop)

    def _decorator_wrapper(self, original: Callable) -> Callable:
        """nvtx.annotate as a decorator whose functions are reported and translated, also without nsys, where `original`
        returns the function unchanged."""

        @wraps(original)
        def decorate(annotation: Any, function: Callable) -> Callable:
            name, decorated = _message(annotation) or function.__name__, original(annotation, function)
            # These only report and translate, since `decorated` opens the range of NVTX itself, if anything does.
            push, pop = self._push_wrapper(lambda _: None, lambda name: name), self._pop_wrapper(lambda: None)

            @wraps(function)
            def annotated(*args: Any, **kwargs: Any) -> Any:
                push(name)
                try:
                    return decorated(*args, **kwargs)
                finally:
                    pop()

            return annotated

        return decorate

    def _open_translation(self, name: str) -> record_function | None:
        """Opens a range of PyTorch's profiler for one of NVTX, and returns it; None for nsys or outside the window."""
        if self._to_nvtx or not self._is_recording():
            return None
        return self._original_enter(record_function(encoded(name)))

    def _close_nvtx_range(self) -> None:
        if self._open_ranges.nvtx_ranges:  # else the range was opened before this object listened
            name, translation = self._open_ranges.nvtx_ranges.pop()
            if translation is not None:
                self._original_exit(translation, None, None, None)
            self._listener.after_range(name)


class _OpenRecordFunction(NamedTuple):
    """An open record_function, its recorded name, and the optimizer whose step it contains, if any."""

    range_: record_function
    recorded_name: str
    optimizer: Any


class _OpenRanges(threading.local):
    """The open ranges of the calling thread, outermost first; of an NVTX range, its name and its translation."""

    def __init__(self) -> None:
        self.record_functions: list[_OpenRecordFunction] = []
        self.nvtx_ranges: list[tuple[str, record_function | None]] = []


def nvtx_text(name: str) -> str:
    """The name as NVTX accepts it: UTF-8 without NUL."""
    return name.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _message(annotation: Any) -> str:
    """The message of an nvtx.annotate, whether or not it records anything."""
    message = getattr(annotation, "init_args", ("",))[0]
    return message or ""
