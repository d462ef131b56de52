"""Opens a part (a range of the model) for every call of a module, by hooks that PyTorch calls around all modules of the
process; and names modules by their place in the model.

The hooks are removed while torch.compile traces a model. If it saw them, it would put their number into the guards of
the compiled model, and compile again once they are gone.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from kernel_tables.marks import when_imported
from kernel_tables.marks.backward import follow_backward
from kernel_tables.marks.marker import Emitter, Marker, is_in_backward, record_function_emitter, uncompiled


@contextmanager
def mark(model: nn.Module, emitter: Emitter | None = None) -> Iterator[None]:
    """A block in which every call of every module of a model is in a range, forward and backward, and each backward
    pass in a range `backward`.

    The ranges have the names of `module_names`. They are of PyTorch's profiler, or what another `emitter` opens:
    `nvtx_emitter()` for nsys. One model is marked at a time."""
    names = {id(module): name for module, name in module_names(model)}
    marker = Marker(record_function_emitter() if emitter is None else emitter)
    parts = ModuleParts(marker.part, lambda module: names.get(id(module)))
    follow_backward(marker, "backward")
    parts.begin()
    try:
        yield
    finally:
        parts.end()
        follow_backward(None)


class ModuleParts:
    """Opens and closes the parts. `name_of` returns the name of a module, or None for no part; `part` makes the context
    manager of a name. `around` makes another one for each outermost call of a module; a call inside of a backward pass,
    which may compute a module again, is not outermost.

    No model is compiled again for these parts. Modules inside a compiled model are not called, so they have no parts.
    """

    active: ClassVar[list["ModuleParts"]] = []  # those that have begun, the earliest first

    def __init__(
        self,
        part: Callable[[str], AbstractContextManager],
        name_of: Callable[[nn.Module], str | None],
        around: Callable[[nn.Module], AbstractContextManager] | None = None,
    ) -> None:
        self._part, self._name_of, self._around = part, name_of, around
        self._handles: list[RemovableHandle] = []
        # `calls` that have not returned on this thread, the outermost first: the module, the name of its part or None,
        # and the ranges that are open for it
        self._local = threading.local()

    def begin(self) -> None:
        _hide_from_compiler()
        self.active.append(self)
        self._register()

    def end(self) -> None:
        """Stops opening parts, and closes those of the calling thread."""
        if self in self.active:
            self.active.remove(self)
        self._remove()
        while self._calls:
            self._close_last()

    @property
    def _calls(self) -> list[tuple[nn.Module, str | None, list[AbstractContextManager]]]:
        return self._local.__dict__.setdefault("calls", [])

    def _register(self) -> None:
        self._remove()
        begins = register_module_forward_pre_hook(self.call_begins)
        self._handles = [begins, register_module_forward_hook(self._call_ends, always_call=True)]

    def _remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    @uncompiled
    def call_begins(self, module: nn.Module, *_: Any) -> None:
        """Opens the ranges of a module that is called now. Public for a call that began before `begin`."""
        if torch.compiler.is_compiling() or self not in self.active:
            return
        calls, name = self._calls, self._name_of(module)
        contexts = []
        if self._around and not calls and not is_in_backward():
            contexts.append(self._around(module))
        outer_name = next((outer for _, outer, _ in reversed(calls) if outer is not None), None)
        if name not in (None, outer_name):  # a wrapper and its module have the same name, but get one range
            contexts.append(self._part(name))
        calls.append((module, name, contexts))
        for context in contexts:
            context.__enter__()

    @uncompiled
    def _call_ends(self, module: nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling() or all(module is not called for called, *_ in self._calls):
            return
        while self._close_last() is not module:  # inner calls whose end was missed are closed, too
            pass

    def _close_last(self) -> nn.Module:
        module, _, contexts = self._calls.pop()
        for context in reversed(contexts):
            context.__exit__(None, None, None)
        return module


@cache
def _hide_from_compiler() -> None:
    """Hides the hooks of all ModuleParts from torch.compile, once per process."""

    def has_hooks_of_others() -> bool:
        hooks, ours = torch.nn.modules.module, len(ModuleParts.active)
        forward_count = max(len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks))
        return bool(hooks._global_backward_hooks or hooks._global_backward_pre_hooks) or forward_count > ours

    # With PyTorch's function of this name, torch.compile warns of hooks that a compiled model would not call.
    torch.nn.modules.module._has_any_global_hook = has_hooks_of_others

    def watch(dynamo: ModuleType) -> None:
        if hasattr(dynamo, "on_compile_start"):  # in PyTorch 2.4 and newer
            dynamo.on_compile_start(lambda _: [parts._remove() for parts in ModuleParts.active])
            dynamo.on_compile_end(lambda _: [parts._register() for parts in ModuleParts.active])

    when_imported("torch._dynamo", watch)


# The attributes in which the wrappers of torch.compile, FSDP and checkpoints keep the module that they wrap.
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def children_of(module: nn.Module) -> dict[str, nn.Module]:
    """The modules directly in it by name; {} if the module, which may be the program's own code, raises."""
    with suppress(Exception):
        return dict(module.named_children())
    return {}


def class_name(module: nn.Module) -> str:
    """The name of a module's class. FSDP2 replaces the class Block by a subclass FSDPBlock: then it is Block."""
    bases = type(module).__bases__
    return bases[-1].__name__ if bases[0].__name__ == "FSDPModule" else type(module).__name__


def model_name(model: nn.Module) -> str:
    """The name of the model's class, without the wrappers around it."""
    children = children_of(model)
    inner = next((children[key] for key in WRAPPERS if key in children), None)
    return class_name(model) if inner is None else model_name(inner)


def module_names(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """The model with the name of its class, and every module in it with its path, as in the names of parameters, but
    without numbers:

    - In an nn.ModuleList of one class, members have the name of the list: `blocks.3.attention` is `blocks.attention`.
    - In other containers, the class replaces the number: `head.0` is `head.Linear`."""
    root_name = model_name(model)
    yield model, root_name
    unvisited, seen = [(model, "")], {id(model)}
    while unvisited:
        module, path = unvisited.pop()
        children = children_of(module)
        has_one_class = len({type(child) for child in children.values()}) == 1
        for key, child in children.items():
            if id(child) in seen:
                continue
            seen.add(id(child))
            if key in WRAPPERS or (key.isdigit() and has_one_class and isinstance(module, nn.ModuleList)):
                key = ""
            elif key.isdigit():
                key = class_name(child)
            child_path = ".".join(filter(None, (path, key)))
            yield child, child_path or root_name  # no path: it is the wrapped model
            unvisited.append((child, child_path))
