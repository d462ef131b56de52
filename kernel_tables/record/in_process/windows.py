"""Windows that open and close by a named range, by the program's own calls, or by time; see also steps_window.

Each window listens to the program's ranges.
"""

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from kernel_recorder.in_process.handover import NSYS, STEP, Settings
from kernel_recorder.in_process.recorder import Recorder
from range_marks.module_parts import ModuleHooks, is_outermost
from range_marks.uncompiled import uncompiled


class OutermostCalls:
    """Calls `before_call` before every outermost call of a module on the thread that made the first."""

    def __init__(self, before_call: Callable[[nn.Module, tuple], None]) -> None:
        self._before_call = before_call
        self._hooks = ModuleHooks(self._before, self._after)
        self._open_calls: list[nn.Module] = []
        self._thread: int | None = None  # that made the first call

    def begin(self) -> None:
        self._hooks.begin()

    def end(self) -> None:
        self._hooks.end()
        self._open_calls.clear()

    @uncompiled
    def _before(self, module: nn.Module, args: tuple) -> None:
        if torch.compiler.is_compiling() or self._thread not in (None, threading.get_ident()):
            return
        self._thread = threading.get_ident()
        is_outermost_call = is_outermost(self._open_calls)  # which a call inside a backward pass is not
        self._open_calls.append(module)
        if is_outermost_call:
            self._before_call(module, args)

    @uncompiled
    def _after(self, module: nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling() or self._thread != threading.get_ident():
            return
        if any(module is open_module for open_module in self._open_calls):
            while self._open_calls.pop() is not module:  # inner calls that raised an error are still there
                pass


class Window:
    """The base of all windows: notes whether the program opened ranges itself before the window, and whether `step`."""

    def __init__(self, recorder: Recorder, settings: Settings) -> None:
        self.recorder, self.settings = recorder, settings
        recorder.progress = self.progress
        self.has_own_ranges, self.has_own_steps = False, False  # opened by the program before the window

    def attach(self) -> None:
        """Begins to look for the window, once PyTorch is imported."""

    def before_range(self, name: str, *, of_torch: bool) -> None:
        """A range is about to open, with `of_torch` one that PyTorch opens itself."""
        self.has_own_ranges |= not of_torch and self.recorder.is_waiting
        self.has_own_steps |= name == STEP and self.recorder.is_waiting

    def after_range(self, name: str, optimizer: Any = None) -> None:
        """A range has closed. If it was around the step of an optimizer, `optimizer` is that."""

    def progress(self) -> dict[str, Any]:
        """How far this process came towards the window, for the notes."""
        return {}


class RangeWindow(Window):
    """Opens after a number of instances of a named range; instances inside another one do not count."""

    def __init__(self, recorder: Recorder, settings: Settings) -> None:
        super().__init__(recorder, settings)
        self._instances = 0
        self._depth = threading.local()  # of open instances on a thread, as `value`

    def before_range(self, name: str, *, of_torch: bool) -> None:
        super().before_range(name, of_torch=of_torch)
        if name != self.settings.range:
            return
        self._depth.value = getattr(self._depth, "value", 0) + 1
        if self._depth.value == 1 and self.recorder.is_waiting:
            self._instances += 1
            if self._instances > self.settings.skip:
                self.recorder.open(first=self._instances)

    def after_range(self, name: str, optimizer: Any = None) -> None:
        if name != self.settings.range or not getattr(self._depth, "value", 0):
            return
        self._depth.value -= 1
        if self._depth.value == 0 and self.recorder.is_open:
            self.recorder.completed += 1
            if self.recorder.completed >= self.settings.steps:
                self.recorder.close()

    def progress(self) -> dict[str, Any]:
        return {"reached": self._instances}


class ProgramWindow(Window):
    """Opens and closes where the program calls cudaProfilerStart and cudaProfilerStop, through PyTorch."""

    def attach(self) -> None:
        torch.cuda.cudart = torch.cuda.profiler.cudart = lambda: _Cudart(self.recorder)


class _Cudart:
    """torch.cuda.cudart() whose calls for profilers also open and close the window."""

    original = staticmethod(torch.cuda.cudart)

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original(), name)

    def cudaProfilerStart(self) -> Any:
        self._recorder.open()
        return self.original().cudaProfilerStart()

    def cudaProfilerStop(self) -> Any:
        try:
            return self.original().cudaProfilerStop()
        finally:
            self._recorder.close()


class SecondsWindow(Window):
    """Opens and closes at times after the first call of a module, on the main thread, as soon as that runs Python;
    under nsys not before the program uses the GPU. Imports, and building a model, can take longer than the window."""

    def __init__(self, recorder: Recorder, settings: Settings) -> None:
        super().__init__(recorder, settings)
        self._calls = OutermostCalls(self._first_call)
        self._has_called = False

    def attach(self) -> None:
        self._calls.begin()

    def progress(self) -> dict[str, Any]:
        return {"reached": int(self._has_called)}

    def _first_call(self, *_: Any) -> None:
        self._has_called = True
        self._calls.end()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        time.sleep(self.settings.delay_s)
        while self.settings.profiler == NSYS and not torch.cuda.is_initialized():
            time.sleep(0.01)
        while self.recorder.is_waiting:
            call_on_main_thread(self.recorder.open)
            time.sleep(0.05)
        time.sleep(self.settings.duration_s)
        while self.recorder.is_open:
            call_on_main_thread(self.recorder.close)
            time.sleep(0.05)


_pending_calls: list[Any] = []  # kept alive until the interpreter makes them


def call_on_main_thread(call: Callable[[], Any]) -> None:
    """Asks the interpreter to call on the main thread as soon as that runs Python: a profiler belongs to the thread
    that starts it, and a signal handler would be the program's."""

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    def pending_call(_: Any) -> int:
        call()
        return 0

    _pending_calls.append(pending_call)
    ctypes.pythonapi.Py_AddPendingCall(pending_call, None)
