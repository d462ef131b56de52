"""The ranges of modules around the kernels of compiled graphs: a compiled model calls no modules, only kernels.

The code that inductor writes for a recorded program names the modules of each kernel (range_marks.compiled). It must
not be used by other processes, so inductor's caches are neither read nor written.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from itertools import groupby
from operator import attrgetter
from types import ModuleType
from typing import Any

from range_marks import compiled
from range_marks.compiled import PartRange
from range_marks.imports import when_imported
from range_marks.marker import Marker

CACHES = ("fx_graph_cache", "fx_graph_remote_cache", "enable_autograd_cache", "enable_remote_autograd_cache")
ModuleIds = tuple[int, ...]  # a chain: the ids of modules, each called inside the one before


class CompilationHooks:
    """Changes inductor until `close`: graphs that are compiled meanwhile open the ranges of the modules of each kernel.
    With `in_torch_profile`, fused kernels of a CPU become events of PyTorch's profiler."""

    def __init__(self, *, in_torch_profile: bool) -> None:
        self._is_open, self._restorations = True, ExitStack()
        for config_module in ("torch._inductor.config", "torch._functorch.config"):
            when_imported(config_module, self._disable_caches)
        if in_torch_profile:
            when_imported("torch._inductor.config", lambda config: self._set(config.cpp, "enable_kernel_profile", True))
        when_imported("torch._inductor.compile_fx", self._follow)

    def close(self) -> None:
        """Restores inductor. Graphs that were compiled before still name modules, without effect."""
        self._is_open = False
        self._restorations.close()

    def _disable_caches(self, config: ModuleType) -> None:
        for name in CACHES:
            self._set(config, name, False)

    def _set(self, config: Any, name: str, value: bool) -> None:
        """Sets an option, if this PyTorch has it, until `close`."""
        if self._is_open and hasattr(config, name):
            self._restorations.callback(setattr, config, name, getattr(config, name))
            setattr(config, name, value)

    def _follow(self, _: ModuleType) -> None:
        """Lets the code that inductor writes name the chains of modules of each kernel."""
        if self._is_open:
            compiled.follow_compiled(module_chains)
            self._restorations.callback(compiled.leave_compiled)


def open_module_ranges(marker: Marker, name_of: Callable[[int], str | None]) -> None:
    """Opens ranges of modules around kernels of compiled graphs from now on; `name_of` gives the name of the module
    with an id."""
    cached_ranges = cache(partial(ranges_of, name_of=name_of))
    compiled.open_ranges(marker, lambda chains: _not_open_yet(_open_names(marker), cached_ranges(chains)))


def close_module_ranges() -> None:
    """Opens no more ranges."""
    compiled.open_ranges(None)


def module_chains(origins: compiled.KernelOrigins) -> tuple[ModuleIds, ...]:
    """The distinct chains of modules that called the operations of a kernel (for a backward kernel, the operations that
    it differentiates), sorted."""
    chains = {_module_ids(node.meta) for node in origins.nodes}
    return tuple(sorted(chains - {()}))


def ranges_of(chains: tuple[ModuleIds, ...], name_of: Callable[[int], str | None]) -> list[PartRange]:
    """The ranges around a kernel of these chains of modules: first those with which all chains begin. If a chain goes
    on, one more range follows, named by the set of all innermost modules."""
    ranges_by_chain = [ranges for chain in chains if (ranges := _chain_ranges(chain, name_of))]
    common = []
    for level in zip(*ranges_by_chain, strict=False):
        if len({part_range.name for part_range in level}) > 1:
            break
        common.append(PartRange(level[0].name, frozenset(part_range.instance for part_range in level)))
    if all(len(ranges) == len(common) for ranges in ranges_by_chain):
        return common
    innermost = [ranges[-1] for ranges in ranges_by_chain]
    set_name = compiled.joint_name(part_range.name for part_range in innermost)
    return [*common, PartRange(set_name, frozenset(part_range.instance for part_range in innermost))]


def _open_names(marker: Marker) -> list[str]:
    """The names of the modules whose ranges are open on the calling thread, in a forward or a backward pass."""
    state = marker.state
    return [part.name for part in state.forward_parts or state.reopened_parts]


def _not_open_yet(open_names: list[str], ranges: list[PartRange]) -> list[PartRange]:
    """The ranges that remain to be opened: without the first ones, if the innermost open ranges have their names."""
    names = [part_range.name for part_range in ranges]
    for count in range(min(len(open_names), len(ranges)), 0, -1):
        if open_names[-count:] == names[:count]:
            return ranges[count:]
    return ranges


def _module_ids(meta: dict[str, Any]) -> ModuleIds:
    """The ids of the modules around an operation, from the keys of its stack: "7", or "7@1" for the second call."""
    stack = meta.get("fwd_nn_module_stack") or meta.get("nn_module_stack") or {}
    keys = [str(key).partition("@")[0] for key in stack]
    return tuple(int(key) for key in keys if key.isdecimal())


def _chain_ranges(chain: ModuleIds, name_of: Callable[[int], str | None]) -> list[PartRange]:
    """A range for each module of the chain that has a name; not for a wrapper, which repeats the name around it."""
    ranges = [PartRange(name, module_id) for module_id in chain if (name := name_of(module_id))]
    return [next(group) for _, group in groupby(ranges, attrgetter("name"))]
