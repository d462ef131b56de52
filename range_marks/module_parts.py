"""A part for every call of a module, from hooks that PyTorch calls around all modules of the process."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import nn

from range_marks.module_hooks import ModuleHooks, is_outermost, keywords_of_call
from range_marks.uncompiled import uncompiled


class ModuleCall(NamedTuple):
    """A call of a module that has not returned."""

    module: nn.Module
    name: str | None  # of its part
    contexts: list[AbstractContextManager]  # the ranges that are open for it


class ModuleParts:
    """Opens and closes the parts. `part` makes a context manager of a name, `name_of` gives the name of a module, or
    None; `around` gives the context manager around an outermost call of a module with these arguments.

    No model is compiled again for them. Within what was compiled no module is called, so it has none of these parts.
    """

    def __init__(
        self,
        part: Callable[[str], AbstractContextManager],
        name_of: Callable[[nn.Module], str | None],
        around: Callable[[nn.Module, tuple, dict[str, Any]], AbstractContextManager] | None = None,
    ) -> None:
        self._part, self._name_of, self._around = part, name_of, around
        self._hooks = ModuleHooks(self.before, self._after)
        self._thread = _ModuleCallStack()
        self._is_on = False

    def begin(self) -> None:
        """Opens parts from now on."""
        self._is_on = True
        self._hooks.begin()

    def end(self) -> None:
        """Stops opening parts, and closes those of the calling thread."""
        self._is_on = False
        self._hooks.end()
        while self._thread.called:
            self._close_last()

    @uncompiled
    def before(self, module: nn.Module, args: tuple) -> None:
        """Opens the ranges of a module that is about to be called."""
        if torch.compiler.is_compiling() or not self._is_on:
            return
        called, name = self._thread.called, self._name_of(module)
        outer = next((call.name for call in reversed(called) if call.name is not None), None)
        contexts = []
        if self._around and is_outermost(called):
            contexts.append(self._around(module, args, keywords_of_call()))
        if name not in (None, outer):  # a wrapper has its module's name
            contexts.append(self._part(name))
        called.append(ModuleCall(module, name, contexts))
        for context in contexts:
            context.__enter__()

    @uncompiled
    def _after(self, module: nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling() or all(module is not call.module for call in self._thread.called):
            return
        while self._close_last() is not module:
            pass

    def _close_last(self) -> nn.Module:
        call = self._thread.called.pop()
        for context in reversed(call.contexts):
            context.__exit__(None, None, None)
        return call.module


class _ModuleCallStack(threading.local):
    """The modules that are being called on this thread, the outermost first."""

    def __init__(self) -> None:
        self.called: list[ModuleCall] = []
