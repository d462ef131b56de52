"""A range for every module of the models of a program, forward and backward, for as long as the window is open."""

import gc
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import wraps
from typing import Any

import torch
from torch import nn

from kernel_recorder.in_process.compiled_ranges import close_modules, open_modules
from kernel_recorder.in_process.passes import Passes
from range_marks.backward import follow_backward
from range_marks.marker import Marker
from range_marks.module_names import model_name, names_in
from range_marks.module_parts import ModuleParts
from range_marks.uncompiled import uncompiled_wrapper

BACKWARD = "backward"
MOST_MODELS = 4  # of one class that get separate names; more are the layers of a model that keeps them in a list


class ModuleRanges:
    """Opens and closes the ranges of all modules, and those around the passes that they are called in, in the window
    alone."""

    def __init__(self, marker: Marker, depth: int | None, passes: Passes) -> None:
        self._marker, self._depth, self.passes = marker, depth, passes
        self._parts = ModuleParts(marker.part, self._name_of, self._pass)
        self._before_us: tuple[Callable, Callable] | None = None
        self._names: dict[int, str | None] = {}
        self._named: list[nn.Module] = []  # kept alive, so that no other module gets their ids

    def begin(self) -> None:
        """Names what is there, and opens ranges from now on."""
        models = models_of_this_process()
        numbered = numbered_models(models)
        for model in models:
            self._name(model, numbered.get(id(model)))
        self._before_us = torch.autograd.backward, torch.autograd.grad
        follow_backward(self._marker)
        torch.autograd.backward = self._in_range(BACKWARD, torch.autograd.backward)
        open_modules(self._marker, self._names.get)
        self._parts.begin()

    def end(self) -> None:
        """Opens no more."""
        self._parts.end()
        close_modules()
        if self._before_us is not None:
            follow_backward(None)
            torch.autograd.backward, torch.autograd.grad = self._before_us  # which may be another's than PyTorch's own
        self._names.clear()
        self._named.clear()

    def call_begins(self, module: nn.Module, args: tuple) -> None:
        """The ranges were begun in the hooks before a call of this module."""
        self._parts.before(module, args)

    def _in_range(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def called(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return call(*args, **kwargs)
            with self._marker.range(name):
                return call(*args, **kwargs)

        return uncompiled_wrapper(called)

    def _pass(self, module: nn.Module, args: tuple, keywords: dict[str, Any]) -> AbstractContextManager:
        """The range around an outermost call."""
        kind = self.passes.kind(module, args, keywords)
        self.passes.count(self._name_of(module), kind, args, keywords)
        return self._marker.range(kind)

    def _name_of(self, module: nn.Module) -> str | None:
        if id(module) not in self._names:  # made since the window opened
            self._name(module)
        return self._names[id(module)]

    def _name(self, model: nn.Module, name_of_model: str | None = None) -> None:
        try:
            named = list(names_in(model, self._depth, name_of_model))
        except Exception:  # a model that hides what it consists of: it has no range, and the program goes on
            named = [(model, None)]
        for module, name in named:
            self._names.setdefault(id(module), name)
            self._named.append(module)


def numbered_models(models: list[nn.Module]) -> dict[int, str]:
    """The names of models of one class, by id: the second GPT with parameters is "GPT 2"; the first has no entry."""
    by_class: dict[str, list[nn.Module]] = defaultdict(list)
    for model in models:
        with suppress(Exception):  # a model that hides what it consists of
            if any(True for _ in model.parameters()):
                by_class[model_name(model)].append(model)
    return {
        id(model): f"{name} {number}"
        for name, alike in by_class.items()
        if len(alike) <= MOST_MODELS
        for number, model in enumerate(alike[1:], start=2)
    }


def models_of_this_process() -> list[nn.Module]:
    """Every module that is alive here and part of no other, older ones mostly first."""
    objects = (item for generation in (2, 1, 0) for item in gc.get_objects(generation))
    modules = [item for item in objects if issubclass(type(item), nn.Module)]
    parts: set[int] = set()
    for module in modules:
        with suppress(Exception):  # one that hides what it consists of
            parts.update(id(child) for child in module.children())
    return [module for module in modules if id(module) not in parts]
