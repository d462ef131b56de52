"""A window of so many seconds."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from kernel_recorder.in_process.outermost_calls import OutermostCalls
from kernel_recorder.in_process.recorder import Recorder
from kernel_recorder.in_process.settings import NSYS, Settings
from kernel_recorder.in_process.windows import Window


class SecondsWindow(Window):
    """Opens and closes at times after the first call of a module, on the main thread, as soon as that runs Python;
    under nsys not before the program uses the GPU. Imports, and building a model, can take longer than the window."""

    def __init__(self, recorder: Recorder, settings: Settings) -> None:
        super().__init__(recorder, settings)
        self._calls = OutermostCalls(self._first_call)

    def attach(self) -> None:
        self._calls.begin()

    def progress(self) -> dict[str, Any]:
        return {"reached": int(self._calls.were_heard)}

    def _first_call(self, *_: Any) -> None:
        self._calls.end()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        time.sleep(self.settings.after)
        while self.settings.profiler == NSYS and not torch.cuda.is_initialized():
            time.sleep(0.01)
        while self.recorder.waits:
            on_main_thread(self.recorder.open)
            time.sleep(0.05)
        time.sleep(self.settings.seconds)
        on_main_thread(self.recorder.close)


_kept: list[Any] = []  # what the interpreter was asked to call must live until it does


def on_main_thread(call: Callable[[], Any]) -> None:
    """Asks the interpreter to call on the main thread as soon as that runs Python: a profiler belongs to the thread
    that starts it, and a signal handler would be the program's."""

    def called(_: Any) -> int:
        call()
        return 0

    pending = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(called)
    _kept.append(pending)
    ctypes.pythonapi.Py_AddPendingCall(pending, None)
