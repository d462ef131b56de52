"""Hooks around every call of a module in this process, which torch.compile does not see when it traces a model.

If it saw them, it would put their number into the guards of the compiled model, and compile again once they are gone.
"""

import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from range_marks.imports import when_imported


class ModuleHooks:
    """Hooks before and after each call, also where the call raises."""

    _all: ClassVar[list["ModuleHooks"]] = []  # that are set, in this order

    def __init__(self, before: Callable[[nn.Module, tuple], None], after: Callable[..., None]) -> None:
        self._before, self._after = before, after
        self._handles: list[RemovableHandle] = []

    def begin(self) -> None:
        """Registers the hooks."""
        _hide_from_compiler()
        self._all.append(self)
        self._set()

    def end(self) -> None:
        """Removes the hooks."""
        if self in self._all:
            self._all.remove(self)
        self._take_away()

    def _set(self) -> None:
        self._handles = [
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after, always_call=True),
        ]

    def _take_away(self) -> None:
        for handle in self._handles:
            handle.remove()

    @classmethod
    def _compilation_begins(cls, _: Any) -> None:
        for hooks in cls._all:
            hooks._take_away()

    @classmethod
    def _compilation_ends(cls, _: Any) -> None:
        for hooks in cls._all:
            hooks._take_away()
            hooks._set()


@cache
def _hide_from_compiler() -> None:
    """Hides all hooks from torch.compile, once per process."""
    # By this function it finds hooks that a compiled model would not call, and warns. These need not be called there.
    torch.nn.modules.module._has_any_global_hook = _has_hooks_of_others

    def watch(dynamo: ModuleType) -> None:
        if hasattr(dynamo, "on_compile_start"):  # in PyTorch 2.4 and newer
            dynamo.on_compile_start(ModuleHooks._compilation_begins)
            dynamo.on_compile_end(ModuleHooks._compilation_ends)

    when_imported("torch._dynamo", watch)


def _has_hooks_of_others() -> bool:
    modules, ours = torch.nn.modules.module, len(ModuleHooks._all)
    forward = len(modules._global_forward_hooks), len(modules._global_forward_pre_hooks)
    return bool(modules._global_backward_hooks or modules._global_backward_pre_hooks) or max(forward) > ours


def is_outermost(called: list) -> bool:
    """Whether no module is being called on this thread, and no backward pass computes one again."""
    return not called and torch._C._current_graph_task_id() == -1


def keywords_of_call() -> dict[str, Any]:
    """The arguments by keyword of the call before which a hook runs. PyTorch hands them to no hook for all modules."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != nn.modules.module.__file__:
        frame = frame.f_back
    keywords = None if frame is None else frame.f_locals.get("kwargs")
    return keywords if isinstance(keywords, dict) else {}
