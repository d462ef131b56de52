"""The time of a window in which nothing records, what the program computes meanwhile, and the calls of its models."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from kernel_tables.marks.marker import is_in_backward, uncompiled
from kernel_tables.marks.modules import ModuleParts
from kernel_tables.record.handover import Notes
from kernel_tables.record.profilers import with_callbacks

Call = Callable[..., Any]


class Timer:
    """Takes the time in the place of a profiler, and keeps what the program computes: the loss of each backward pass
    since the start and, without one, numbers of the output to which `keep_output` is called. `save` notes both.

    A loss is copied on its device, which takes one small kernel, and read after the window. Not seen are losses in a
    CUDA graph.
    """

    is_taken = False

    def __init__(self, notes: Notes, at_end: Callable[[], object]) -> None:
        self._notes, self._at_end = notes, at_end
        self._losses: list[torch.Tensor] = []
        self._output = torch.empty(0)
        self._began_s = self._s = 0.0

    def watch_program(self, _: Callable[[], None]) -> None:
        """Keeps losses from now on."""
        original = torch.autograd.backward

        @wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            self._keep_loss(args[0] if args else kwargs.get("tensors"))
            return original(*args, **kwargs)

        torch.autograd.backward = uncompiled(backward, with_calls=False)

    def start(self) -> None:
        """Does nothing: what is noted after the start of a profiler takes time."""

    def start_clock(self) -> None:
        """Starts the clock, as the last thing before the program goes on."""
        self._began_s = time.perf_counter()

    def stop(self, *, at_exit: bool) -> None:
        """Stops the clock, after the device was waited for."""
        self._s = time.perf_counter() - self._began_s

    def save(self, folder: Path) -> None:
        """Notes the seconds of the window, the losses, and the numbers of the output."""
        self._at_end()
        losses = [float(loss) for loss in self._losses]
        self._notes.add("timed", seconds=self._s, losses=losses, output=self._output.double().tolist())

    def keep_output(self, output: Any) -> None:
        """Keeps up to 256 numbers of the first tensor of an output, copied on its device."""
        tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
        tensors = [one for one in tensors if one.layout == torch.strided and not one.is_nested and one.numel()]
        if tensors and not self._losses:
            numbers = tensors[0].detach().flatten()
            self._output = numbers[:: len(numbers) // 256 + 1].clone()

    def _keep_loss(self, roots: Any) -> None:
        if self._s or torch.compiler.is_compiling() or is_in_backward():
            return
        is_captured = torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
        if isinstance(roots, torch.Tensor) and roots.numel() == 1 and not is_captured:
            self._losses.append(roots.detach().clone())


class ModelCalls:
    """Calls `before(model)` and `after(output)` around each outermost call of a module with parameters, and lets
    `improve`, which gets this model and the function that its calls run, return another one.

    Hooks around all modules find the models: they take 3 µs of each call of a module, so they end with the first step
    of a program that `is_training`, else with the third call of a model. From then on, a model runs a function in the
    attribute `_compiled_call_impl`, which PyTorch calls if it is set, and does not copy. `improve` is called only then,
    when torch.compile sees no hooks of ours.
    """

    def __init__(self, improve: Callable[[nn.Module, Call], Call]) -> None:
        self._improve = improve
        self.before: Callable[[nn.Module], object] = lambda model: None
        self.after: Callable[[Any], object] = lambda output: None
        self.is_training: Callable[[], bool] = lambda: False
        self._models: dict[int, nn.Module] = {}  # by id; kept alive, so that no other gets its id
        self._local = threading.local()  # `is_inside` a call of a model
        self._is_looking = False
        self._hooks = ModuleParts(self._call_of_model, self._name_of)

    def begin(self) -> None:
        """Looks for models from now on."""
        nn.Module.compile = with_callbacks(nn.Module.compile, after=self._after_compile)
        self._is_looking = True
        self._hooks.begin()

    def end(self) -> None:
        """Looks for no further models; calls of those that were found are still reported."""
        self._is_looking = False
        self._hooks.end()

    def _after_compile(self, model: nn.Module, *_: Any) -> None:
        """The program has compiled a model in place, which replaced the function around its call."""
        if id(model) in self._models:
            model._compiled_call_impl = self._wrapper(model)

    def _name_of(self, model: nn.Module) -> str | None:
        """Of a module that a hook finds: a name if it is a model, which is called for the first time."""
        is_inside = is_in_backward() or getattr(self._local, "is_inside", False)
        if is_inside or id(model) in self._models or next(model.parameters(), None) is None:
            return None
        self._models[id(model)] = model
        self.before(model)
        model._compiled_call_impl = self._wrapper(model)
        return "model"

    @contextmanager
    def _call_of_model(self, _: str = "") -> Iterator[None]:
        self._local.is_inside = True
        try:
            yield
        finally:
            self._local.is_inside = False

    def _wrapper(self, model: nn.Module) -> Call:
        call = model._compiled_call_impl or model._call_impl
        is_improved, times = False, 0

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal call, is_improved, times
            if is_in_backward() or getattr(self._local, "is_inside", False):
                return call(*args, **kwargs)
            times += 1
            if self._is_looking and times > 1 and not self.is_training():
                self.end()
            if not (is_improved or self._is_looking):
                call, is_improved = self._improve(model, call), True
            self.before(model)
            with self._call_of_model():
                output = call(*args, **kwargs)
            self.after(output)
            return output

        return uncompiled(wrapper, with_calls=False)
