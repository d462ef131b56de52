"""The ranges of a recording: those that the program opens itself, and those that the recorder adds.

nsys does not record record_function, nor PyTorch's profiler NVTX. So ranges that a program opens by record_function,
torch.cuda.nvtx or the package nvtx are translated; not those by `range_start`, `start_range`, or a Domain object.
"""

import gc
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial, wraps
from itertools import takewhile
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.autograd.profiler import record_function
from torch.optim.optimizer import register_optimizer_step_pre_hook

from kernel_tables.marks import compiled, when_imported
from kernel_tables.marks.backward import follow_backward
from kernel_tables.marks.compiled import PartRange
from kernel_tables.marks.marker import Emitter, Marker, encoded, record_function_emitter, uncompiled
from kernel_tables.marks.modules import ModuleParts, children_of, module_names
from kernel_tables.record.handover import STEP

ORIGINAL_PUSH, ORIGINAL_POP = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop


class OpenRanges(threading.local):
    """The open ranges of the calling thread: those of NVTX, outermost first (name and translation), and the one that
    PyTorch opened around the step of an optimizer, with that optimizer."""

    def __init__(self) -> None:
        self.nvtx_ranges: list[tuple[str, record_function | None]] = []
        self.step_range: record_function | None = None
        self.optimizer: Any = None


class ProgramRanges:
    """Translates this process's ranges: to NVTX with `to_nvtx`, else to ranges of PyTorch's profiler, but only while
    `is_recording`, so that a profile by the program itself has only its ranges.

    `before(name, of_torch=...)` is called before each range opens, with `of_torch` one that PyTorch opens itself, and
    `after(name, optimizer)` after it has closed, with the optimizer if the range was around its step."""

    def __init__(
        self, *, to_nvtx: bool, is_recording: Callable[[], bool], before: Callable[..., None],
        after: Callable[[str, Any], None],
    ) -> None:  # fmt: skip
        self._to_nvtx, self._is_recording, self._before, self._after = to_nvtx, is_recording, before, after
        self._open = OpenRanges()

    def watch_nvtx(self, nvtx: ModuleType) -> None:
        """Listens to the ranges of the package nvtx, from now on."""
        annotate = nvtx.annotate
        nvtx.push_range = self._push_wrapper(nvtx.push_range, lambda message=None, *_, **__: message or "")
        nvtx.pop_range = self._pop_wrapper(nvtx.pop_range)
        annotate.__enter__ = self._push_wrapper(annotate.__enter__, message_of)
        annotate.__exit__ = self._pop_wrapper(annotate.__exit__)
        annotate.__call__ = opening_decorator(annotate.__call__)

    def watch_torch(self) -> None:
        """Listens to the ranges that are opened through PyTorch, and to optimizers, from now on."""
        nvtx = torch.cuda.nvtx
        nvtx.range_push = self._push_wrapper(nvtx.range_push, lambda message: str(message))
        nvtx.range_pop = self._pop_wrapper(nvtx.range_pop)
        self._original_enter, self._original_exit = record_function.__enter__, record_function.__exit__

        @wraps(record_function.__enter__)
        def enter(range_: record_function) -> record_function:
            package = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
            self._before(range_.name, of_torch=package == "torch")
            if range_.name.startswith("Optimizer.step#"):
                self._open.step_range = range_
            return self._enter(range_)

        @wraps(record_function.__exit__)
        def exit_(range_: record_function, *error: Any) -> Any:
            optimizer = None
            if range_ is self._open.step_range:
                optimizer, self._open.step_range, self._open.optimizer = self._open.optimizer, None, None
            has_failed = any(detail is not None for detail in error)
            try:
                return self._exit(range_, *error)
            finally:
                self._after(range_.name, None if has_failed else optimizer)

        record_function.__enter__, record_function.__exit__ = uncompiled(enter), uncompiled(exit_)
        # before optimizers are compiled: torch.compile compiles an optimizer again if its hooks change
        register_optimizer_step_pre_hook(self._before_step)

    @uncompiled
    def _before_step(self, optimizer: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]] | None:
        """A hook that returns new arguments of the step, with a wrapped closure, or None. args[0] is the optimizer.

        PyTorch opens a range around `optimizer.step(closure)`. LBFGS needs a closure, and PyTorch Lightning always
        passes one. Then forward and backward pass run inside that call, and their kernels would count as the
        optimizer's. So the range is closed while the closure runs."""
        if torch.compiler.is_compiling():
            return None
        self._open.optimizer, range_ = optimizer, self._open.step_range
        if range_ is None or not self._is_recording():
            return None
        if callable(kwargs.get("closure")):
            return args, kwargs | {"closure": self._outside(range_, kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._outside(range_, args[1]), *args[2:]), kwargs
        return None

    def _outside(self, range_: record_function, closure: Callable[..., Any]) -> Callable[..., Any]:
        """The closure, inside which the range is closed."""

        @wraps(closure)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._exit(range_, None, None, None)
            try:
                return closure(*args, **kwargs)
            finally:
                self._enter(range_)

        return uncompiled(wrapper, with_calls=False)

    def _enter(self, range_: record_function) -> record_function:
        if self._to_nvtx:
            ORIGINAL_PUSH(range_.name)
        if self._to_nvtx or not self._is_recording():
            return self._original_enter(range_)
        name, range_.name = range_.name, encoded(range_.name)
        try:
            return self._original_enter(range_)
        finally:
            range_.name = name

    def _exit(self, range_: record_function, *error: Any) -> Any:
        try:
            return self._original_exit(range_, *error)
        finally:
            if self._to_nvtx:
                ORIGINAL_POP()

    def _push_wrapper(self, original: Callable, name_of: Callable[..., str]) -> Callable:
        @wraps(original)
        def push(*args: Any, **kwargs: Any) -> Any:
            name = name_of(*args, **kwargs)
            self._before(name, of_torch=False)
            result = original(*args, **kwargs)
            translated = not self._to_nvtx and self._is_recording()
            translation = self._original_enter(record_function(encoded(name))) if translated else None
            self._open.nvtx_ranges.append((name, translation))
            return result

        return uncompiled(push)

    def _pop_wrapper(self, original: Callable) -> Callable:
        @wraps(original)
        def pop(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if self._open.nvtx_ranges:  # else the range was opened before this object listened
                name, translation = self._open.nvtx_ranges.pop()
                if translation is not None:
                    self._original_exit(translation, None, None, None)
                self._after(name, None)
            return result

        return uncompiled(pop)


def message_of(annotation: Any) -> str:
    """The message of an nvtx.annotate, whether or not it records anything."""
    return getattr(annotation, "init_args", ("",))[0] or ""


def opening_decorator(original: Callable) -> Callable:
    """nvtx.annotate as a decorator that opens its range as a block does; `original` opens none without nsys."""

    def decorate(annotation: Any, function: Callable) -> Callable:
        original(annotation, function)  # which names a range without a message by the function
        annotation.init_args = (message_of(annotation) or function.__name__, *annotation.init_args[1:])

        @wraps(function)
        def annotated(*args: Any, **kwargs: Any) -> Any:
            with annotation:
                return function(*args, **kwargs)

        return annotated

    return decorate


class AddedRanges:
    """The ranges that the recorder opens between `begin` and `end`, in the window: one for each step; and one for each
    module of all models of this process, forward and backward, for each call of backward, and for each outermost call
    of a module: `forward` with gradients, else `inference`."""

    def __init__(self, *, has_modules: bool, has_steps: bool, to_nvtx: bool) -> None:
        self.has_modules, self.has_steps, self._to_nvtx = has_modules, has_steps, to_nvtx
        # the original functions, since ProgramRanges replaces those of PyTorch to see the program's own ranges
        self._marker = Marker(Emitter(ORIGINAL_PUSH, ORIGINAL_POP) if to_nvtx else record_function_emitter())
        self._parts = ModuleParts(
            self._marker.part, self._name_of,
            lambda _: self._marker.range("forward" if torch.is_grad_enabled() else "inference"),
        )  # fmt: skip
        self._step = ExitStack()  # closes the range of the step, if one is open
        # by id, the module (kept alive, so that no other gets its id) and its name
        self._named: dict[int, tuple[nn.Module | None, str | None]] = {}

    def begin(self) -> None:
        """Finds the names of the modules of all models that exist, and opens ranges from now on."""
        if self.has_modules:
            for model in models_of_this_process():
                self._add_names(model)
            follow_backward(self._marker, "backward")
            open_ranges_of_chains(self._marker, lambda module_id: self._named.get(module_id, (None, None))[1])
            self._parts.begin()

    def end(self) -> None:
        if self.has_modules:
            self._parts.end()
            compiled.open_ranges(None)
            follow_backward(None)
            self._named.clear()
        self.step_ends()

    def step_begins(self) -> None:
        """Opens the range of a step, if steps get ranges."""
        if self.has_steps and self._to_nvtx:
            # no push and pop: ranges of the program may open in one step and close in the next
            self._step.callback(torch.cuda.nvtx.range_end, torch.cuda.nvtx.range_start(STEP))
        elif self.has_steps:
            self._step.enter_context(record_function(STEP))

    def step_ends(self) -> None:
        """Closes the range of the step, if one is open."""
        self._step.close()

    def call_begins(self, module: nn.Module) -> None:
        """Opens the range of a call of this module, in whose hooks the window has opened."""
        self._parts.call_begins(module)  # which does nothing unless they have begun

    def _name_of(self, module: nn.Module) -> str | None:
        if id(module) not in self._named:  # created since the window opened
            self._add_names(module)
        return self._named[id(module)][1]

    def _add_names(self, model: nn.Module) -> None:
        for module, name in module_names(model):
            self._named.setdefault(id(module), (module, name))


def models_of_this_process() -> list[nn.Module]:
    """Every module that is alive here and not part of another one, older ones mostly first."""
    objects = (item for generation in (2, 1, 0) for item in gc.get_objects(generation))
    modules = [item for item in objects if issubclass(type(item), nn.Module)]
    child_ids = {id(child) for module in modules for child in children_of(module).values()}
    return [module for module in modules if id(module) not in child_ids]


def follow_compilation(*, in_torch_profile: bool) -> None:
    """From now on, graphs that inductor compiles open the ranges of the modules of each kernel, since a compiled model
    calls no modules, only kernels. What is written so must not be used by other processes, so inductor's caches are
    neither read nor written. With `in_torch_profile`, fused kernels of a CPU become events of PyTorch's profiler."""

    def change_inductor(_: ModuleType) -> None:
        from torch._functorch import config as autograd_config
        from torch._inductor import config

        config.fx_graph_cache = False
        if hasattr(autograd_config, "enable_autograd_cache"):  # in this PyTorch
            autograd_config.enable_autograd_cache = False
        config.cpp.enable_kernel_profile |= in_torch_profile
        compiled.follow_compiled(module_chains)

    when_imported("torch._inductor.compile_fx", change_inductor)


Chain = tuple[int, ...]  # the ids of modules, each called inside the one before


def module_chains(_: list[str], nodes: list[Any]) -> tuple[Chain, ...]:
    """The distinct chains of modules that called the operations of a kernel (or those that it differentiates)."""
    chains = set()
    for node in nodes:
        stack = node.meta.get("fwd_nn_module_stack") or node.meta.get("nn_module_stack") or {}
        keys = [str(key).partition("@")[0] for key in stack]  # "7", or "7@1" for the second call
        chains.add(tuple(int(key) for key in keys if key.isdecimal()))
    return tuple(sorted(chains - {()}))


def ranges_of_chains(chains: tuple[Chain, ...], name_of: Callable[[int], str | None]) -> list[PartRange]:
    """The ranges around a kernel of these chains of modules: first those with which all chains begin. If a chain goes
    on, one more range follows, named by the set of all innermost modules."""
    # by name, so that a wrapper, which repeats the name around it, has no range
    paths = [{name: module_id for module_id in chain if (name := name_of(module_id))} for chain in chains]
    paths = [[*path.items()] for path in paths if path]
    levels = [*takewhile(lambda level: len({name for name, _ in level}) == 1, zip(*paths, strict=False))]
    if any(len(path) > len(levels) for path in paths):
        levels.append([path[-1] for path in paths])
    return [PartRange(compiled.joint_name(name for name, _ in level), frozenset(level)) for level in levels]


def open_ranges_of_chains(marker: Marker, name_of: Callable[[int], str | None]) -> None:
    """Opens ranges of modules around kernels of compiled graphs from now on; `name_of` gives the name of the module
    with an id. Ranges that are open already, in a forward or a backward pass, are not opened again."""

    ranges_of = cache(partial(ranges_of_chains, name_of=name_of))

    def ranges_to_open(chains: tuple[Chain, ...]) -> list[PartRange]:
        ranges = ranges_of(chains)
        names = [part_range.name for part_range in ranges]
        open_names = [part.name for part in marker.state.forward_parts or marker.state.reopened_parts]
        counts = range(len(names), 0, -1)
        return ranges[next((count for count in counts if open_names[-count:] == names[:count]), 0) :]

    compiled.open_ranges(marker, ranges_to_open)
