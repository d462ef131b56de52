"""A range for every module of the models of a program, forward and backward, for as long as the window is open."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from kernel_tables.marking.backward import follow_backward
from kernel_tables.marking.marker import Marker
from kernel_tables.recording.inside.module_names import models_of_this_process, names_in

BACKWARD = "backward"


class ModuleRanges:
    """Opens and closes the ranges from hooks that PyTorch calls around every module, in the window alone.

    No model is compiled again for them. Within what was compiled no module is called, so it has none of these ranges.
    """

    def __init__(self, marker: Marker, depth: int | None) -> None:
        self._marker, self._depth = marker, depth
        self._hooks: list[RemovableHandle] = []
        self._before_us: tuple[Callable, Callable] = (torch.autograd.backward, torch.autograd.grad)
        self._names: dict[int, str | None] = {}
        self._named: list[nn.Module] = []  # kept alive, so that no other module gets their ids
        self._thread = _Called()

    def begin(self) -> None:
        """Names what is there, and opens ranges from now on."""
        for model in models_of_this_process():
            self._name(model)
        self._before_us = torch.autograd.backward, torch.autograd.grad
        follow_backward(self._marker)
        torch.autograd.backward = self._in_range(BACKWARD, torch.autograd.backward)
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
        follow_backward(None)
        torch.autograd.backward, torch.autograd.grad = self._before_us  # which may be another's than PyTorch's own
        self._names.clear()
        self._named.clear()

    def _in_range(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def called(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return call(*args, **kwargs)
            with self._marker.range(name):
                return call(*args, **kwargs)

        return called

    def _name_later(self, module: nn.Module) -> None:
        try:
            self._name(module)
        except Exception:  # a module that hides what it consists of: it has no range, and the program goes on
            self._names[id(module)] = None
            self._named.append(module)

    def _name(self, model: nn.Module) -> None:
        for module, name in names_in(model, self._depth):
            self._names.setdefault(id(module), name)
            self._named.append(module)

    def _before(self, module: nn.Module, _: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if id(module) not in self._names:  # made since the window opened
            self._name_later(module)
        name, around = self._names[id(module)], self._marker.thread.forward
        opens = name is not None and not (around and around[-1].name == name)  # a wrapper has its module's name
        self._thread.called.append((module, opens))
        if opens:
            self._marker.open_part(name)

    def _after(self, module: nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling() or all(module is not called for called, _ in self._thread.called):
            return
        while self._thread.called:
            called, opened = self._thread.called.pop()
            if opened:
                self._marker.close_part()
            if called is module:
                return


class _Called(threading.local):
    """The modules that are being called on this thread, each with whether it opened a range."""

    def __init__(self) -> None:
        self.called: list[tuple[nn.Module, bool]] = []
