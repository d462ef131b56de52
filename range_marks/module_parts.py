"""A part for every call of a module, from hooks that PyTorch calls around all modules of the process."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

Called = tuple[nn.Module, str | None, AbstractContextManager | None]  # its part, where it opened one


class ModuleParts:
    """Opens and closes the parts. `part` makes a context manager of a name, `name_of` tells that of a module, or None.

    No model is compiled again for them. Within what was compiled no module is called, so it has none of these parts.
    """

    def __init__(
        self, part: Callable[[str], AbstractContextManager], name_of: Callable[[nn.Module], str | None]
    ) -> None:
        self._part, self._name_of = part, name_of
        self._hooks: list[RemovableHandle] = []
        self._thread = _Thread()

    def begin(self) -> None:
        """Opens parts from now on."""
        # PyTorch warns of hooks that a compiled model would not call; these need not be called there.
        warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks", UserWarning)
        self._hooks = [
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after, always_call=True),
        ]

    def end(self) -> None:
        """Opens no more."""
        for hook in self._hooks:
            hook.remove()

    def _before(self, module: nn.Module, _: Any) -> None:
        if torch.compiler.is_compiling():
            return
        called, name = self._thread.called, self._name_of(module)
        around = next((outer for _, outer, _ in reversed(called) if outer is not None), None)
        opened = self._part(name) if name not in (None, around) else None  # a wrapper has its module's name
        called.append((module, name, opened))
        if opened:
            opened.__enter__()

    def _after(self, module: nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling() or all(module is not one for one, _, _ in self._thread.called):
            return
        while self._thread.called:
            called, _, opened = self._thread.called.pop()
            if opened:
                opened.__exit__(None, None, None)
            if called is module:
                return


class _Thread(threading.local):
    """The modules that are being called on this thread, the outermost first."""

    def __init__(self) -> None:
        self.called: list[Called] = []
