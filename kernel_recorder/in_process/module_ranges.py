"""A range for every module of the models of a program, forward and backward, for as long as the window is open."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn

from range_marks.backward import follow_backward
from range_marks.marker import Marker
from range_marks.module_names import names_in
from range_marks.module_parts import ModuleParts

BACKWARD = "backward"


class ModuleRanges:
    """Opens and closes the ranges of all modules, in the window alone."""

    def __init__(self, marker: Marker, depth: int | None) -> None:
        self._marker, self._depth = marker, depth
        self._parts = ModuleParts(marker.part, self._name_of)
        self._before_us: tuple[Callable, Callable] = (torch.autograd.backward, torch.autograd.grad)
        self._names: dict[int, str | None] = {}
        self._named: list[nn.Module] = []  # kept alive, so that no other module gets their ids

    def begin(self) -> None:
        """Names what is there, and opens ranges from now on."""
        for model in models_of_this_process():
            self._name(model)
        self._before_us = torch.autograd.backward, torch.autograd.grad
        follow_backward(self._marker)
        torch.autograd.backward = self._in_range(BACKWARD, torch.autograd.backward)
        self._parts.begin()

    def end(self) -> None:
        """Opens no more."""
        self._parts.end()
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

    def _name_of(self, module: nn.Module) -> str | None:
        if id(module) not in self._names:  # made since the window opened
            self._name_later(module)
        return self._names[id(module)]

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


def models_of_this_process() -> list[nn.Module]:
    """Every module that is alive here and part of no other."""
    modules = [found for found in gc.get_objects() if issubclass(type(found), nn.Module)]
    parts = {id(child) for module in modules for child in module.children()}
    return [module for module in modules if id(module) not in parts]
