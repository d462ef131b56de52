"""The ranges that the recorder opens while the window is open: one for each module of the program's models, forward
and backward; one for each step; one for each call of torch.autograd.backward; and one for each outermost call of a
module, named by its kind (forward, inference, prefill, decode), which follows from gradients and shapes.
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

from kernel_recorder.in_process.compiled_ranges import close_module_ranges, open_module_ranges
from kernel_recorder.in_process.handover import MODULES, STEP
from range_marks.backward import follow_backward
from range_marks.closures import Closures
from range_marks.marker import Marker
from range_marks.module_parts import ModuleParts, children_of, keyword_arguments, model_name, module_names
from range_marks.uncompiled import uncompiled_wrapper

FORWARD, INFERENCE = "forward", "inference"  # calls with and without gradients
PREFILL, DECODE = "prefill", "decode"  # calls with a prompt, and with one token after it
BACKWARD = "backward"
MAX_SHAPES = 2  # of a call's tensors
MAX_MODELS = 4  # of one class that get separate names; more are the layers of a model that keeps them in a list


class CallLog:
    """Finds the kind of each outermost call, and counts these calls: `counts_by_step` has a Counter for each step, by
    texts such as "GPT forward with input 8x128"."""

    def __init__(self) -> None:
        self._max_tokens: dict[int, int] = {}  # of the longest call so far, by the id of the module
        self._decoding: set[int] = set()  # the ids of modules that were called with one token after a longer call
        self.counts_by_step: list[Counter[str]] = []

    def step_begins(self) -> None:
        """Counts the following calls for another step."""
        self.counts_by_step.append(Counter())

    def classify(self, module: nn.Module, args: tuple, keywords: dict[str, Any]) -> str:
        """Returns the kind of a call that is about to begin, and remembers its length: earlier calls distinguish
        decoding from other inference."""
        if torch.is_grad_enabled():
            return FORWARD
        tokens, module_id = _token_count(args, keywords), id(module)
        self._max_tokens[module_id] = max(self._max_tokens.get(module_id, 0), tokens or 0)
        if tokens == 1 and self._max_tokens[module_id] > 1:
            self._decoding.add(module_id)
        if tokens is None or module_id not in self._decoding:
            return INFERENCE
        return DECODE if tokens == 1 else PREFILL

    def count(self, name: str | None, kind: str, args: tuple, keywords: dict[str, Any]) -> None:
        """Counts a call of the module of this name, if a step has begun."""
        if self.counts_by_step:
            shapes = ["x".join(map(str, tensor.shape)) for tensor in _tensors(args, keywords)][:MAX_SHAPES]
            inputs = f" with input {' and '.join(shapes)}" if shapes else ""
            self.counts_by_step[-1][f"{name or ''} {kind}{inputs}"] += 1


def _token_count(args: tuple, keywords: dict[str, Any]) -> int | None:
    """The tokens per sequence of a call: the width of its first integer tensor of two dimensions; None without one."""
    tokens = (tensor for tensor in _tensors(args, keywords) if not tensor.is_floating_point() and tensor.dim() == 2)
    return next((tensor.shape[1] for tensor in tokens), None)


def _tensors(args: tuple, keywords: dict[str, Any]) -> Iterator[Tensor]:
    return (value for value in (*args, *keywords.values()) if isinstance(value, Tensor))


class ModuleRanges:
    """Opens the ranges of all modules, and of the outermost calls and backward passes, between `begin` and `end`."""

    def __init__(self, marker: Marker, depth: int | None, calls: CallLog) -> None:
        self._marker, self._depth, self.calls = marker, depth, calls
        self._parts = ModuleParts(marker.part, self._name_of, self._range_of_call)
        self._originals: tuple[Callable, Callable] | None = None  # torch.autograd.backward and .grad before `begin`
        self._names: dict[int, str | None] = {}
        self._named_modules: list[nn.Module] = []  # kept alive, so that no other module gets their ids

    def begin(self) -> None:
        """Finds the names of the modules of all models that exist, and opens ranges from now on."""
        models = models_of_this_process()
        model_names = numbered_models(models)
        for model in models:
            self._add_names(model, model_names.get(id(model)))
        self._originals = torch.autograd.backward, torch.autograd.grad  # follow_backward replaces both
        follow_backward(self._marker)
        torch.autograd.backward = self._in_backward_range(torch.autograd.backward)
        open_module_ranges(self._marker, self._names.get)
        self._parts.begin()

    def end(self) -> None:
        """Opens no more ranges."""
        self._parts.end()
        close_module_ranges()
        if self._originals is not None:
            follow_backward(None)
            torch.autograd.backward, torch.autograd.grad = self._originals
        self._names.clear()
        self._named_modules.clear()

    def call_begins(self, module: nn.Module, args: tuple) -> None:
        """Opens the range of a call of this module, whose hooks have run: the window opened in one of them."""
        self._parts.call_begins(module, args)

    def _in_backward_range(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with a range around each call."""

        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return function(*args, **kwargs)
            with self._marker.range(BACKWARD):
                return function(*args, **kwargs)

        return uncompiled_wrapper(wrapper)

    def _range_of_call(self, module: nn.Module, args: tuple, keywords: dict[str, Any]) -> AbstractContextManager:
        """The range around an outermost call."""
        kind = self.calls.classify(module, args, keywords)
        self.calls.count(self._name_of(module), kind, args, keywords)
        return self._marker.range(kind)

    def _name_of(self, module: nn.Module) -> str | None:
        if id(module) not in self._names:  # created since the window opened
            self._add_names(module)
        return self._names[id(module)]

    def _add_names(self, model: nn.Module, root_name: str | None = None) -> None:
        try:
            modules = list(module_names(model, self._depth, root_name))
        except Exception:  # the model does not let its modules be listed, so it has no range
            modules = [(model, None)]
        for module, name in modules:
            self._names.setdefault(id(module), name)
            self._named_modules.append(module)


def numbered_models(models: list[nn.Module]) -> dict[int, str]:
    """The names of models of one class, by id: the second GPT with parameters is "GPT 2". The first has no entry,
    nor have models of a class with more than MAX_MODELS."""
    by_class: dict[str, list[nn.Module]] = defaultdict(list)
    for model in models:
        with suppress(Exception):  # the model may not let its parameters be listed
            if any(True for _ in model.parameters()):
                by_class[model_name(model)].append(model)
    return {
        id(model): f"{name} {number}"
        for name, class_models in by_class.items()
        if len(class_models) <= MAX_MODELS
        for number, model in enumerate(class_models[1:], start=2)
    }


def models_of_this_process() -> list[nn.Module]:
    """Every module that is alive here and not part of another one, older ones mostly first."""
    objects = (item for generation in (2, 1, 0) for item in gc.get_objects(generation))
    modules = [item for item in objects if issubclass(type(item), nn.Module)]
    child_ids = {id(child) for module in modules for child in children_of(module).values()}
    return [module for module in modules if id(module) not in child_ids]


class WindowRanges:
    """Opens ranges of steps and of modules in the window. `is_wanted` says for each kind, MODULES or STEP, whether to
    do so; it is asked when the window opens. While an optimizer runs a closure, the range of its step is closed."""

    def __init__(
        self, is_wanted: Callable[[str], bool], modules: ModuleRanges, closures: Closures, *, to_nvtx: bool
    ) -> None:
        self._is_wanted, self._modules, self._closures, self._to_nvtx = is_wanted, modules, closures, to_nvtx
        self._has_modules, self.has_steps = False, False  # whether they get ranges in the window that is open
        self._close_step: Callable[[], object] | None = None

    def begin(self) -> None:
        """Begins to open ranges, before the window opens."""
        self._has_modules, self.has_steps = self._is_wanted(MODULES), self._is_wanted(STEP)
        self._closures.begin()
        if self._has_modules:
            self._modules.calls.counts_by_step.clear()
            self._modules.begin()

    def end(self) -> None:
        """Ends all ranges, before the window closes."""
        if self._has_modules:
            self._modules.end()
        self._closures.end()
        self.step_ends()

    def step_begins(self) -> None:
        """Opens the range of a step."""
        if self._has_modules:
            self._modules.calls.step_begins()
        if not self.has_steps:
            return
        if self._to_nvtx:  # no push and pop: ranges of the program may open in one step and close in the next
            range_id = torch.cuda.nvtx.range_start(STEP)
            self._close_step = lambda: torch.cuda.nvtx.range_end(range_id)
        else:
            step = record_function(STEP)
            step.__enter__()
            self._close_step = lambda: step.__exit__(None, None, None)

    def step_ends(self) -> None:
        """Closes the range of the step, if one is open."""
        if self._close_step is not None:
            close, self._close_step = self._close_step, None
            close()

    def call_begins(self, module: torch.nn.Module, args: tuple) -> None:
        """Opens the range of a call of this module, in whose hooks the window has opened."""
        if self._has_modules:
            self._modules.call_begins(module, args)

    def call_before_window(self, module: torch.nn.Module, args: tuple) -> None:
        """Remembers the length of a call, since the kinds of later calls depend on it."""
        self._modules.calls.classify(module, args, keyword_arguments())

    def facts(self) -> dict[str, object]:
        """The calls of each step, for the notes, if modules had ranges."""
        return {"passes": [dict(counts) for counts in self._modules.calls.counts_by_step]} if self._has_modules else {}
