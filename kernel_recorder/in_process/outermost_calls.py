"""The outermost calls of modules, heard from hooks that PyTorch calls around all modules of the process."""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from range_marks.module_hooks import ModuleHooks, is_outermost
from range_marks.uncompiled import uncompiled


class OutermostCalls:
    """Calls `begins` before every outermost call of a module on the thread that made the first."""

    def __init__(self, begins: Callable[[nn.Module, tuple], None]) -> None:
        self._begins = begins
        self._hooks = ModuleHooks(self._before, self._after)
        self._called: list[nn.Module] = []
        self._thread: int | None = None

    def begin(self) -> None:
        self._hooks.begin()

    def end(self) -> None:
        self._hooks.end()
        self._called.clear()

    @property
    def were_heard(self) -> bool:
        """Whether a module has been called."""
        return self._thread is not None

    @uncompiled
    def _before(self, module: nn.Module, args: tuple) -> None:
        if torch.compiler.is_compiling() or self._thread not in (None, threading.get_ident()):
            return
        self._thread = threading.get_ident()
        outermost = is_outermost(self._called)
        self._called.append(module)
        if outermost:
            self._begins(module, args)

    @uncompiled
    def _after(self, module: nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling() or self._thread != threading.get_ident():
            return
        if any(module is called for called in self._called):
            while self._called.pop() is not module:
                pass
