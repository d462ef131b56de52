"""The ranges of modules around the kernels of compiled graphs: a compiled model calls no modules, only kernels.

The code that inductor writes for a recorded program names the modules that each kernel serves (range_marks.compiled).
So it is compiled only for this process: inductor's caches, which outlast it, are neither read nor written.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from types import ModuleType
from typing import Any

from range_marks import compiled
from range_marks.compiled import PartRange
from range_marks.imports import when_imported
from range_marks.marker import Marker

CACHES = ("fx_graph_cache", "fx_graph_remote_cache", "enable_autograd_cache", "enable_remote_autograd_cache")
Modules = tuple[int, ...]  # the ids of modules, each called inside the one before


class FollowedModules:
    """Until it is closed, what inductor compiles in this process enters the modules of each kernel. For PyTorch's
    profiler, fused kernels of a processor become events of it."""

    def __init__(self, *, in_torch_profile: bool) -> None:
        self._is_open, self._before_us = True, ExitStack()
        for settings in ("torch._inductor.config", "torch._functorch.config"):
            when_imported(settings, lambda config: [self._set(config, name, False) for name in CACHES])
        if in_torch_profile:
            when_imported("torch._inductor.config", lambda config: self._set(config.cpp, "enable_kernel_profile", True))
        when_imported("torch._inductor.compile_fx", self._follow)

    def close(self) -> None:
        """Restores inductor. Graphs compiled until then still name the modules that they enter, without effect."""
        self._is_open = False
        self._before_us.close()

    def _set(self, config: Any, name: str, value: bool) -> None:
        if self._is_open and hasattr(config, name):
            self._before_us.callback(setattr, config, name, getattr(config, name))
            setattr(config, name, value)

    def _follow(self, _: ModuleType) -> None:
        if self._is_open:
            compiled.follow_compiled(modules_served)
            self._before_us.callback(compiled.leave_compiled)


def open_modules(marker: Marker, name_of: Callable[[int], str | None]) -> None:
    """From now on kernels of compiled graphs are in ranges of the modules that they serve. `name_of` gives the name of
    the module with an id."""

    known = cache(partial(ranges_of, name_of=name_of))
    compiled.open_ranges(marker, lambda chains: _inside(open_names(marker), known(chains)))


def close_modules() -> None:
    """Opens no more."""
    compiled.open_ranges(None)


def modules_served(origins: compiled.KernelOrigins) -> tuple[Modules, ...]:
    """The distinct chains of modules in which the operations of a kernel were called, or whose they differentiate."""
    chains = {_chain(node.meta) for node in origins.nodes}
    return tuple(sorted(chains - {()}))


def ranges_of(chains: tuple[Modules, ...], name_of: Callable[[int], str | None]) -> list[PartRange]:
    """The ranges of a kernel that serves these modules: those of the modules around all of them, then, if there are
    several, that of the set. A module with the name of the one around it, a wrapper, is left out."""
    named = [ranges for chain in chains if (ranges := _ranges_of_chain(chain, name_of))]
    around = []
    for level in zip(*named, strict=False):
        if len({part.name for part in level}) > 1:
            break
        around.append(PartRange(level[0].name, frozenset(part.instance for part in level)))
    if all(len(ranges) == len(around) for ranges in named):
        return around
    innermost = [ranges[-1] for ranges in named]
    of_set = compiled.joint_name(part.name for part in innermost)
    return [*around, PartRange(of_set, frozenset(part.instance for part in innermost))]


def open_names(marker: Marker) -> list[str]:
    """The names of the modules that are open on the calling thread, forward or backward."""
    state = marker.state
    return [part.name for part in state.forward_parts or state.reopened_parts]


def _inside(opened: list[str], ranges: list[PartRange]) -> list[PartRange]:
    """The ranges without those at their beginning that are open already."""
    for count in range(min(len(opened), len(ranges)), 0, -1):
        if opened[-count:] == [part.name for part in ranges[:count]]:
            return ranges[count:]
    return ranges


def _chain(meta: dict[str, Any]) -> Modules:
    """The modules around an operation. Their keys are ids; a module that is called again has a number, too ("7@1")."""
    stack = meta.get("fwd_nn_module_stack") or meta.get("nn_module_stack") or {}
    keys = [str(key).partition("@")[0] for key in stack]
    return tuple(int(key) for key in keys if key.isdecimal())


def _ranges_of_chain(chain: Modules, name_of: Callable[[int], str | None]) -> list[PartRange]:
    named = [PartRange(name, module) for module in chain if (name := name_of(module))]
    return [part for place, part in enumerate(named) if not place or part.name != named[place - 1].name]
