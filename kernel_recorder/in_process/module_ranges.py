"""A range for every module of the models of a program, forward and backward, for as long as the window is open;
and the other ranges of the recorder: of each step, and of each outermost call, by its kind (forward, inference,
prefill, decode), which follows from gradients and shapes.
"""

import gc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.profiler import record_function

from kernel_recorder.in_process.compiled_ranges import close_modules, open_modules
from kernel_recorder.in_process.handover import MODULES, STEP
from range_marks.backward import follow_backward
from range_marks.closures import Closures
from range_marks.marker import Marker
from range_marks.module_parts import ModuleParts, children_of, keyword_arguments, model_name, module_names
from range_marks.uncompiled import uncompiled_wrapper

FORWARD, INFERENCE = "forward", "inference"  # with and without gradients
PREFILL, DECODE = "prefill", "decode"  # of a prompt, and of one token after it
MOST_SHAPES = 2  # of a call's tensors


class Passes:
    """Names passes, and counts those of each step: `steps` has Counters of texts, as "GPT forward with input 8x128"."""

    def __init__(self) -> None:
        self._longest: dict[int, int] = {}  # tokens in a call of a module, by its id
        self._decoding: set[int] = set()  # modules that were called with one token after a longer call
        self.steps: list[Counter[str]] = []

    def step_begins(self) -> None:
        self.steps.append(Counter())

    def kind(self, module: nn.Module, args: tuple, keywords: dict[str, Any]) -> str:
        """The kind of a call that is about to begin."""
        if torch.is_grad_enabled():
            return FORWARD
        tokens, number = _tokens(args, keywords), id(module)
        self._longest[number] = max(self._longest.get(number, 0), tokens or 0)
        if tokens == 1 and self._longest[number] > 1:
            self._decoding.add(number)
        if tokens is None or number not in self._decoding:
            return INFERENCE
        return DECODE if tokens == 1 else PREFILL

    def count(self, name: str | None, kind: str, args: tuple, keywords: dict[str, Any]) -> None:
        """Counts a call of the module of this name."""
        if self.steps:
            shapes = ["x".join(map(str, tensor.shape)) for tensor in _tensors(args, keywords)][:MOST_SHAPES]
            inputs = f" with input {' and '.join(shapes)}" if shapes else ""
            self.steps[-1][f"{name or ''} {kind}{inputs}"] += 1


def _tokens(args: tuple, keywords: dict[str, Any]) -> int | None:
    """Tokens per sequence of a call, if its first integer tensor with two dimensions gives them; else None."""
    numbers = (tensor for tensor in _tensors(args, keywords) if not tensor.is_floating_point() and tensor.dim() == 2)
    return next((tensor.shape[1] for tensor in numbers), None)


def _tensors(args: tuple, keywords: dict[str, Any]) -> Iterator[Tensor]:
    return (value for value in (*args, *keywords.values()) if isinstance(value, Tensor))


BACKWARD = "backward"
MOST_MODELS = 4  # of one class that get separate names; more are the layers of a model that keeps them in a list


class ModuleRanges:
    """Opens and closes the ranges of all modules, and those around the passes that they are called in, only in
    the window."""

    def __init__(self, marker: Marker, depth: int | None, passes: Passes) -> None:
        self._marker, self._depth, self.passes = marker, depth, passes
        self._parts = ModuleParts(marker.part, self._name_of, self._pass)
        self._before_us: tuple[Callable, Callable] | None = None
        self._names: dict[int, str | None] = {}
        self._named: list[nn.Module] = []  # kept alive, so that no other module gets their ids

    def begin(self) -> None:
        """Names the modules of all models that exist, and opens ranges from now on."""
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
            named = list(module_names(model, self._depth, name_of_model))
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
        parts.update(id(child) for child in children_of(module).values())
    return [module for module in modules if id(module) not in parts]


class Parts:
    """Opens ranges of steps and of modules where they are wanted, which is asked when the window opens; closes that of
    an optimizer while it runs a closure."""

    def __init__(
        self, wants: Callable[[str], bool], modules: ModuleRanges, closures: Closures, *, to_nvtx: bool
    ) -> None:
        self._wants, self._modules, self._closures, self._to_nvtx = wants, modules, closures, to_nvtx
        self._has_modules = self.has_steps = False
        self._close_step: Callable[[], object] | None = None

    def begin(self) -> None:
        """The window has opened."""
        self._has_modules, self.has_steps = self._wants(MODULES), self._wants(STEP)
        self._closures.begin()
        if self._has_modules:
            self._modules.passes.steps.clear()
            self._modules.begin()

    def end(self) -> None:
        """The window is about to close."""
        if self._has_modules:
            self._modules.end()
        self._closures.end()
        self.step_ends()

    def step_begins(self) -> None:
        if self._has_modules:
            self._modules.passes.step_begins()
        if not self.has_steps:
            return
        if self._to_nvtx:  # no push and pop: ranges of the program may open in one step and close in the next
            number = torch.cuda.nvtx.range_start(STEP)
            self._close_step = lambda: torch.cuda.nvtx.range_end(number)
        else:
            opened = record_function(STEP)
            opened.__enter__()
            self._close_step = lambda: opened.__exit__(None, None, None)

    def step_ends(self) -> None:
        if self._close_step is not None:
            close, self._close_step = self._close_step, None
            close()

    def call_begins(self, module: torch.nn.Module, args: tuple) -> None:
        """The window has opened in the hooks before a call of this module."""
        if self._has_modules:
            self._modules.call_begins(module, args)

    def call_before_window(self, module: torch.nn.Module, args: tuple) -> None:
        """Lengths of earlier calls distinguish decoding from other inference."""
        self._modules.passes.kind(module, args, keyword_arguments())

    def facts(self) -> dict[str, object]:
        """What the steps of the window ran, as far as modules had ranges."""
        return {"passes": [dict(step) for step in self._modules.passes.steps]} if self._has_modules else {}
