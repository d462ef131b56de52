"""The ranges of a recording: those that the program opens itself, and those that the recorder adds.

nsys does not record record_function, nor PyTorch's profiler NVTX. So ranges that a program opens by record_function,
torch.cuda.nvtx or the package nvtx are translated; not those by `range_start`, `start_range`, or a Domain object.
"""

import gc
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial, wraps
from itertools import groupby, takewhile
from operator import attrgetter
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.profiler import record_function
from torch.optim.optimizer import register_optimizer_step_pre_hook

from kernel_tables.marks import compiled, when_imported
from kernel_tables.marks.backward import follow_backward
from kernel_tables.marks.compiled import PartRange
from kernel_tables.marks.marker import Emitter, Marker, encoded, record_function_emitter, uncompiled
from kernel_tables.marks.modules import ModuleParts, children_of, module_names
from kernel_tables.record.handover import MODULES, STEP

ORIGINAL_PUSH, ORIGINAL_POP = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop


class OpenRanges(threading.local):
    """The open ranges of the calling thread, outermost first: of record_function (itself, and the optimizer
    whose step it contains, if any), and of NVTX (its name and its translation)."""

    def __init__(self) -> None:
        self.record_functions: list[tuple[record_function, Any]] = []
        self.nvtx_ranges: list[tuple[str, record_function | None]] = []


class ProgramRanges:
    """Translates this process's ranges: to NVTX with `to_nvtx`, else to ranges of PyTorch's profiler, but only while
    `is_recording`, so that a profile by the program itself has only its ranges.

    `before(name, of_torch=...)` is called before each range opens, with `of_torch` one that PyTorch opens itself, and
    `after(name, optimizer)` after it has closed, with the optimizer if the range was around its step.
    """

    OPTIMIZER_STEP = "Optimizer.step#"  # prefix of the range that PyTorch opens around the step of an optimizer

    def __init__(
        self,
        *,
        to_nvtx: bool,
        is_recording: Callable[[], bool] = lambda: True,
        before: Callable[..., None] = lambda name, of_torch: None,
        after: Callable[[str, Any], None] = lambda name, optimizer: None,
    ) -> None:
        self._to_nvtx, self._is_recording, self._before, self._after = to_nvtx, is_recording, before, after
        self._open_ranges = OpenRanges()

    def watch_torch(self) -> None:
        """Listens to the ranges that are opened through PyTorch, from now on."""
        self.watch_record_function()
        nvtx = torch.cuda.nvtx
        nvtx.range_push = self._push_wrapper(nvtx.range_push, lambda message: str(message))
        nvtx.range_pop = self._pop_wrapper(nvtx.range_pop)

    def watch_nvtx(self, nvtx: ModuleType) -> None:
        """Listens to the ranges of the package nvtx, from now on."""
        annotate = nvtx.annotate
        nvtx.push_range = self._push_wrapper(nvtx.push_range, lambda message=None, *_, **__: message or "")
        nvtx.pop_range = self._pop_wrapper(nvtx.pop_range)
        annotate.__enter__ = self._push_wrapper(annotate.__enter__, self._message)
        annotate.__exit__ = self._pop_wrapper(annotate.__exit__)
        annotate.__call__ = self._decorator_wrapper(annotate.__call__)

    def watch_record_function(self) -> None:
        """Listens to record_function, and to optimizers, until `leave_record_function`."""
        self._original_enter, self._original_exit = record_function.__enter__, record_function.__exit__

        @wraps(record_function.__enter__)
        def enter(range_: record_function) -> record_function:
            caller = sys._getframe(1)  # of Optimizer.step, whose `self` is the optimizer, or of any code
            package = caller.f_globals.get("__name__", "").partition(".")[0]
            self._before(range_.name, of_torch=package == "torch")
            optimizer = caller.f_locals.get("self") if range_.name.startswith(self.OPTIMIZER_STEP) else None
            self._open_ranges.record_functions.append((range_, optimizer))
            return self._enter(range_)

        @wraps(record_function.__exit__)
        def exit_(range_: record_function, *error: Any) -> Any:
            opened = self._open_ranges.record_functions
            optimizer = next((actor for other, actor in opened if other is range_), None)
            opened[:] = [one for one in opened if one[0] is not range_]
            has_failed = any(detail is not None for detail in error)
            try:
                return self._exit(range_, *error)
            finally:
                self._after(range_.name, None if has_failed else optimizer)

        record_function.__enter__, record_function.__exit__ = uncompiled(enter), uncompiled(exit_)
        # before optimizers are compiled: torch.compile compiles an optimizer again if its hooks change
        self._hook = register_optimizer_step_pre_hook(self._before_step)

    def leave_record_function(self) -> None:
        """Listens to record_function and optimizers no more."""
        self._hook.remove()
        record_function.__enter__, record_function.__exit__ = self._original_enter, self._original_exit

    @uncompiled
    def _before_step(self, _: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]] | None:
        """A hook that returns new arguments of the step, with a wrapped closure, or None. args[0] is the optimizer.

        PyTorch opens a range around `optimizer.step(closure)`. LBFGS needs a closure, and PyTorch Lightning always
        passes one. Then forward and backward pass run inside that call, and their kernels would count as the
        optimizer's. So the range is closed while the closure runs."""
        if torch.compiler.is_compiling() or not self._is_recording():
            return None
        if callable(kwargs.get("closure")):
            return args, kwargs | {"closure": self._outside_optimizer(kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._outside_optimizer(args[1]), *args[2:]), kwargs
        return None

    def _outside_optimizer(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        """The closure, inside which the range of the optimizer's step on this thread is closed, if it is innermost."""

        @wraps(closure)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            innermost = self._open_ranges.record_functions[-1:]
            closed = [range_ for range_, _ in innermost if range_.name.startswith(self.OPTIMIZER_STEP)]
            for range_ in closed:
                self._exit(range_, None, None, None)
            try:
                return closure(*args, **kwargs)
            finally:
                for range_ in closed:
                    self._enter(range_)

        return uncompiled(wrapper, with_calls=False)

    def _enter(self, range_: record_function) -> record_function:
        if self._to_nvtx:
            ORIGINAL_PUSH(nvtx_text(range_.name))
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
            self._open_ranges.nvtx_ranges.append((name, translation))
            return result

        return uncompiled(push)

    def _pop_wrapper(self, original: Callable) -> Callable:
        @wraps(original)
        def pop(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if self._open_ranges.nvtx_ranges:  # else the range was opened before this object listened
                name, translation = self._open_ranges.nvtx_ranges.pop()
                if translation is not None:
                    self._original_exit(translation, None, None, None)
                self._after(name, None)
            return result

        return uncompiled(pop)

    def _decorator_wrapper(self, original: Callable) -> Callable:
        """nvtx.annotate as a decorator that opens its range as a block does. Without nsys, `original` leaves the
        function as it is."""

        @wraps(original)
        def decorate(annotation: Any, function: Callable) -> Callable:
            original(annotation, function)  # which names a range without a message by the function
            annotation.init_args = (self._message(annotation) or function.__name__, *annotation.init_args[1:])

            @wraps(function)
            def annotated(*args: Any, **kwargs: Any) -> Any:
                with annotation:
                    return function(*args, **kwargs)

            return annotated

        return decorate

    @staticmethod
    def _message(annotation: Any) -> str:
        """The message of an nvtx.annotate, whether or not it records anything."""
        return getattr(annotation, "init_args", ("",))[0] or ""


def nvtx_text(name: str) -> str:
    """The name as NVTX accepts it: UTF-8 without NUL."""
    return name.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


class AddedRanges:
    """The ranges that the recorder opens between `begin` and `end`, in the window: one for each step; and one for each
    module of all models of this process, forward and backward, for each call of backward, and for each outermost call
    of a module, named by its kind. `is_wanted` says for each kind, MODULES or STEP, whether to do so."""

    def __init__(self, is_wanted: Callable[[str], bool], depth: int | None, *, to_nvtx: bool) -> None:
        self._is_wanted, self._depth, self._to_nvtx = is_wanted, depth, to_nvtx
        # the original functions, since ProgramRanges replaces those of PyTorch to see the program's own ranges
        nvtx = Emitter(lambda name: ORIGINAL_PUSH(nvtx_text(name)), ORIGINAL_POP)
        self._marker = Marker(nvtx if to_nvtx else record_function_emitter())
        self._parts = ModuleParts(
            self._marker.part, self._name_of, lambda *call: self._marker.range(self.classify_call(*call))
        )
        self._has_modules, self.has_steps = False, False  # whether they get ranges in the window that is open
        self._close_step: Callable[[], object] | None = None
        self._names: dict[int, str | None] = {}
        self._named_modules: list[nn.Module] = []  # kept alive, so that no other module gets their ids
        self._max_tokens: dict[int, int] = {}  # of the longest call so far, by the id of the module
        self._decoding: set[int] = set()  # the ids of modules that were called with one token after a longer call

    def begin(self) -> None:
        """Finds the names of the modules of all models that exist, and opens ranges from now on."""
        self._has_modules, self.has_steps = self._is_wanted(MODULES), self._is_wanted(STEP)
        if self._has_modules:
            for model in models_of_this_process():
                self._add_names(model)
            follow_backward(self._marker, "backward")
            open_ranges_of_chains(self._marker, self._names.get)
            self._parts.begin()

    def end(self) -> None:
        """Ends all ranges, before the window closes."""
        if self._has_modules:
            self._parts.end()
            compiled.open_ranges(None)
            follow_backward(None)
            self._names.clear()
            self._named_modules.clear()
        self.step_ends()

    def step_begins(self) -> None:
        """Opens the range of a step, if steps get ranges."""
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

    def call_begins(self, module: nn.Module, args: tuple) -> None:
        """Opens the range of a call of this module, in whose hooks the window has opened."""
        if self._has_modules:
            self._parts.call_begins(module, args)

    def classify_call(self, module: nn.Module, args: tuple, keywords: dict[str, Any]) -> str:
        """The kind of a call that is about to begin: forward with gradients, else inference; of a model that was called
        with many tokens and then with one, prefill (a prompt) or decode. It remembers the length: earlier calls
        distinguish decoding from other inference."""
        if torch.is_grad_enabled():
            return "forward"
        tensors = (value for value in (*args, *keywords.values()) if isinstance(value, Tensor))
        tokens = (tensor.shape[1] for tensor in tensors if not tensor.is_floating_point() and tensor.dim() == 2)
        count, module_id = next(tokens, None), id(module)
        self._max_tokens[module_id] = max(self._max_tokens.get(module_id, 0), count or 0)
        if count == 1 and self._max_tokens[module_id] > 1:
            self._decoding.add(module_id)
        if count is None or module_id not in self._decoding:
            return "inference"
        return "decode" if count == 1 else "prefill"

    def _name_of(self, module: nn.Module) -> str | None:
        if id(module) not in self._names:  # created since the window opened
            self._add_names(module)
        return self._names[id(module)]

    def _add_names(self, model: nn.Module) -> None:
        for module, name in module_names(model, self._depth):
            self._names.setdefault(id(module), name)
            self._named_modules.append(module)


def models_of_this_process() -> list[nn.Module]:
    """Every module that is alive here and not part of another one, older ones mostly first."""
    objects = (item for generation in (2, 1, 0) for item in gc.get_objects(generation))
    modules = [item for item in objects if issubclass(type(item), nn.Module)]
    child_ids = {id(child) for module in modules for child in children_of(module).values()}
    return [module for module in modules if id(module) not in child_ids]


class CompilationHooks:
    """Changes inductor until `close`: graphs that are compiled meanwhile open the ranges of the modules of each kernel,
    since a compiled model calls no modules, only kernels. What is written so must not be used by other processes, so
    inductor's caches are neither read nor written. With `in_torch_profile`, fused kernels of a CPU become events of
    PyTorch's profiler. Graphs that were compiled before `close` still name modules, without effect."""

    def __init__(self, *, in_torch_profile: bool) -> None:
        self._is_open, self._restorations = True, ExitStack()
        self._in_torch_profile = in_torch_profile
        when_imported("torch._inductor.config", self._set_options)
        when_imported("torch._functorch.config", self._set_options)
        when_imported("torch._inductor.compile_fx", self._follow)

    def close(self) -> None:
        """Restores inductor."""
        self._is_open = False
        self._restorations.close()

    def _set_options(self, config: Any) -> None:
        """Sets the options that this PyTorch has, until `close`."""
        caches = ("fx_graph_cache", "fx_graph_remote_cache", "enable_autograd_cache", "enable_remote_autograd_cache")
        options = [(config, name, False) for name in caches]
        if self._in_torch_profile and hasattr(config, "cpp"):
            options.append((config.cpp, "enable_kernel_profile", True))
        for owner, name, value in options:
            if self._is_open and hasattr(owner, name):
                self._restorations.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, value)

    def _follow(self, _: ModuleType) -> None:
        if self._is_open:
            compiled.follow_compiled(module_chains)
            self._restorations.callback(compiled.leave_compiled)


Chain = tuple[int, ...]  # the ids of modules, each called inside the one before


def module_chains(_: list[str], nodes: list[Any]) -> tuple[Chain, ...]:
    """The distinct chains of modules that called the operations of a kernel (for a backward kernel, the operations that
    it differentiates), sorted."""
    chains = set()
    for node in nodes:
        stack = node.meta.get("fwd_nn_module_stack") or node.meta.get("nn_module_stack") or {}
        keys = [str(key).partition("@")[0] for key in stack]  # "7", or "7@1" for the second call
        chains.add(tuple(int(key) for key in keys if key.isdecimal()))
    return tuple(sorted(chains - {()}))


def ranges_of_chains(chains: tuple[Chain, ...], name_of: Callable[[int], str | None]) -> list[PartRange]:
    """The ranges around a kernel of these chains of modules: first those with which all chains begin. If a chain goes
    on, one more range follows, named by the set of all innermost modules. A wrapper, which repeats the name around it,
    has none."""
    by_chain = []
    for chain in chains:
        ranges = [PartRange(name, module_id) for module_id in chain if (name := name_of(module_id))]
        if ranges:
            by_chain.append([next(group) for _, group in groupby(ranges, attrgetter("name"))])

    def joint(ranges: Sequence[PartRange]) -> PartRange:
        name = compiled.joint_name(one.name for one in ranges)
        return PartRange(name, frozenset(one.instance for one in ranges))

    levels = takewhile(lambda level: len({one.name for one in level}) == 1, zip(*by_chain, strict=False))
    common = [joint(level) for level in levels]
    if all(len(ranges) == len(common) for ranges in by_chain):
        return common
    return [*common, joint([ranges[-1] for ranges in by_chain])]


def open_ranges_of_chains(marker: Marker, name_of: Callable[[int], str | None]) -> None:
    """Opens ranges of modules around kernels of compiled graphs from now on; `name_of` gives the name of the module
    with an id. Ranges that are open already, in a forward or a backward pass, are not opened again."""
    ranges_of = cache(partial(ranges_of_chains, name_of=name_of))

    def ranges_to_open(chains: tuple[Chain, ...]) -> list[PartRange]:
        ranges, state = ranges_of(chains), marker.state
        names = [part_range.name for part_range in ranges]
        open_names = [part.name for part in state.forward_parts or state.reopened_parts]
        for count in range(min(len(open_names), len(names)), 0, -1):
            if open_names[-count:] == names[:count]:
                return ranges[count:]
        return ranges

    compiled.open_ranges(marker, ranges_to_open)
