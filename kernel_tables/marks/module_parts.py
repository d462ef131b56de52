"""Opens a part (a range of the model) for every call of a module, by hooks that PyTorch calls around all modules of the
process; and names modules by their place in the model.

The hooks are removed while torch.compile traces a model. If it saw them, it would put their number into the guards of
the compiled model, and compile again once they are gone.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from range_marks.imports import when_imported
from range_marks.uncompiled import uncompiled


class ModuleHooks:
    """Hooks that run before and after each call of a module, also if the call raises."""

    _active: ClassVar[list["ModuleHooks"]] = []  # those that have begun, the earliest first

    def __init__(self, before: Callable[[nn.Module, tuple], None], after: Callable[..., None]) -> None:
        self._before, self._after = before, after
        self._handles: list[RemovableHandle] = []

    def begin(self) -> None:
        """Registers the hooks."""
        _hide_from_compiler()
        self._active.append(self)
        self._register()

    def end(self) -> None:
        """Removes the hooks."""
        if self in self._active:
            self._active.remove(self)
        self._remove()

    def _register(self) -> None:
        self._handles = [
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after, always_call=True),
        ]

    def _remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    @classmethod
    def _compilation_begins(cls, _: Any) -> None:
        for hooks in cls._active:
            hooks._remove()

    @classmethod
    def _compilation_ends(cls, _: Any) -> None:
        for hooks in cls._active:
            hooks._remove()  # an inner compilation, which ended first, has registered them again
            hooks._register()


@cache
def _hide_from_compiler() -> None:
    """Hides all ModuleHooks from torch.compile, once per process."""
    # With PyTorch's function of this name, torch.compile finds hooks that a compiled model would not call, and warns of
    # them. It need not warn of ours.
    torch.nn.modules.module._has_any_global_hook = _has_hooks_of_others

    def watch(dynamo: ModuleType) -> None:
        if hasattr(dynamo, "on_compile_start"):  # in PyTorch 2.4 and newer
            dynamo.on_compile_start(ModuleHooks._compilation_begins)
            dynamo.on_compile_end(ModuleHooks._compilation_ends)

    when_imported("torch._dynamo", watch)


def _has_hooks_of_others() -> bool:
    module, our_count = torch.nn.modules.module, len(ModuleHooks._active)
    forward_count = max(len(module._global_forward_hooks), len(module._global_forward_pre_hooks))
    return bool(module._global_backward_hooks or module._global_backward_pre_hooks) or forward_count > our_count


def is_outermost(open_calls: list) -> bool:
    """Whether this thread is in no call of a module, and in no backward pass, which may compute a module again."""
    return not open_calls and torch._C._current_graph_task_id() == -1


def keyword_arguments() -> dict[str, Any]:
    """The keyword arguments of the call before which a hook runs. PyTorch passes them to no hook for all modules."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != nn.modules.module.__file__:
        frame = frame.f_back
    keywords = None if frame is None else frame.f_locals.get("kwargs")
    return keywords if isinstance(keywords, dict) else {}


class ModuleCall(NamedTuple):
    """A call of a module that has not returned."""

    module: nn.Module
    name: str | None  # of the module's part; None if it has none
    contexts: list[AbstractContextManager]  # the ranges that are open for it


class ModuleParts:
    """Opens and closes the parts. `name_of` returns the name of a module, or None for no part; `part` makes the context
    manager of a name. `around` makes another one for each outermost call, from the module and the arguments.

    No model is compiled again for these parts. Modules inside a compiled model are not called, so they have no parts.
    """

    def __init__(
        self,
        part: Callable[[str], AbstractContextManager],
        name_of: Callable[[nn.Module], str | None],
        around: Callable[[nn.Module, tuple, dict[str, Any]], AbstractContextManager] | None = None,
    ) -> None:
        self._part, self._name_of, self._around = part, name_of, around
        self._hooks = ModuleHooks(self.call_begins, self._after)
        self._stack = _ModuleCallStack()
        self._is_on = False

    def begin(self) -> None:
        """Opens parts from now on."""
        self._is_on = True
        self._hooks.begin()

    def end(self) -> None:
        """Stops opening parts, and closes those of the calling thread."""
        self._is_on = False
        self._hooks.end()
        while self._stack.open_calls:
            self._close_last()

    @uncompiled
    def call_begins(self, module: nn.Module, args: tuple) -> None:
        """Opens the ranges of a module that is called now. Public for a call that began before `begin`."""
        if torch.compiler.is_compiling() or not self._is_on:
            return
        open_calls, name = self._stack.open_calls, self._name_of(module)
        outer_name = next((call.name for call in reversed(open_calls) if call.name is not None), None)
        contexts = []
        if self._around and is_outermost(open_calls):
            contexts.append(self._around(module, args, keyword_arguments()))
        if name not in (None, outer_name):  # a wrapper and its module have the same name, but get one range
            contexts.append(self._part(name))
        open_calls.append(ModuleCall(module, name, contexts))
        for context in contexts:
            context.__enter__()

    @uncompiled
    def _after(self, module: nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling() or all(module is not call.module for call in self._stack.open_calls):
            return
        while self._close_last() is not module:  # inner calls whose end was missed are closed, too
            pass

    def _close_last(self) -> nn.Module:
        call = self._stack.open_calls.pop()
        for context in reversed(call.contexts):
            context.__exit__(None, None, None)
        return call.module


class _ModuleCallStack(threading.local):
    """The modules that are being called on this thread, the outermost first."""

    def __init__(self) -> None:
        self.open_calls: list[ModuleCall] = []


# The attributes in which the wrappers of torch.compile, FSDP and checkpoints keep the module that they wrap.
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def children_of(module: nn.Module) -> dict[str, nn.Module]:
    """The modules directly in it by name; {} if the module, which may be the program's own code, raises."""
    with suppress(Exception):
        return dict(module.named_children())
    return {}


def model_name(model: nn.Module) -> str:
    """The name of the model's class, without the wrappers around it."""
    return _class_name(_unwrapped(model))


def _class_name(module: nn.Module) -> str:
    """The name of the module's class. FSDP2 replaces the class Block by a subclass FSDPBlock: then it is Block."""
    module_class = type(module)
    is_of_fsdp = module_class.__bases__[0].__name__ == "FSDPModule"
    return module_class.__bases__[-1].__name__ if is_of_fsdp else module_class.__name__


def module_names(
    model: nn.Module, depth: int | None = None, name_of_model: str | None = None
) -> Iterator[tuple[nn.Module, str | None]]:
    """The model with the name of its class, or with `name_of_model`; and every module in it with its path, as in the
    names of parameters, but without numbers:

    - In an nn.ModuleList of one class, members have the name of the list: `blocks.3.attention` is `blocks.attention`.
    - In other containers, the class replaces the number: `head.0` is `head.Linear`.
    - In an nn.Sequential or nn.ModuleDict whose modules print the same and whose keys differ only in a number at the
      end, the class replaces the key: `layers.block_3` is `layers.Block`.

    A name of more than `depth` components is None.
    """
    root_name = name_of_model or model_name(model)
    yield model, root_name
    unvisited, seen = [(model, "")], {id(model)}
    while unvisited:
        module, path = unvisited.pop()
        for key, child in children_of(module).items():
            if id(child) not in seen:
                seen.add(id(child))
                child_path = ".".join(filter(None, (path, _name_component(module, key, child))))
                is_too_deep = depth is not None and child_path.count(".") >= depth
                yield child, None if is_too_deep else child_path or root_name  # no path: it is the wrapped model
                unvisited.append((child, child_path))


def _name_component(module: nn.Module, key: str, child: nn.Module) -> str:
    """What the child with this key in `module` adds to the path; "" if nothing."""
    if key in WRAPPERS:
        return ""
    if not key.isdigit() and not _is_numbered(module):
        return key
    has_one_class = len({type(child) for child in children_of(module).values()}) == 1
    return "" if isinstance(module, nn.ModuleList) and has_one_class else _class_name(child)


def _is_numbered(module: nn.Module) -> bool:
    """Whether a container numbers its children: they print the same, and are named "layer_0", "layer_1" and so on."""
    children = children_of(module)
    names = {key.rstrip("0123456789") for key in children}
    if not isinstance(module, (nn.Sequential, nn.ModuleDict)) or len(children) < 2 or len(names) > 1:
        return False
    all_have_numbers = names.isdisjoint(children)
    return all_have_numbers and len({repr(child) for child in children.values()}) == 1


def _unwrapped(module: nn.Module) -> nn.Module:
    children = children_of(module)
    inner = next((children[key] for key in WRAPPERS if key in children), None)
    return module if inner is None else _unwrapped(inner)
