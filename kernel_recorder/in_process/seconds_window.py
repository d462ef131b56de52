"""A window of so many seconds."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from kernel_recorder.in_process.settings import NSYS
from kernel_recorder.in_process.windows import Window


class SecondsWindow(Window):
    """Opens and closes at times after PyTorch was imported, on the main thread, as soon as that runs Python; under nsys
    not before the program uses the GPU, since building a model can take longer than all of the window."""

    def attach(self) -> None:
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        time.sleep(self.settings.after)
        while self.settings.profiler == NSYS and not torch.cuda.is_initialized():
            time.sleep(0.01)
        on_main_thread(self.recorder.open)
        while self.recorder.waits:
            time.sleep(0.01)
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
