"""Opens a range around every module of a PyTorch model, forward and backward: a profiler then shows what each launched.

    from kernel_tables.marks import mark

    with torch.profiler.profile() as profile, mark(model):  # for nsys: mark(model, nvtx_emitter())
        model(x).sum().backward()

The ranges are `Model`, `layers.mlp` and so on, and inside `backward` the same ones again, around the operations that
differentiate theirs. A range takes some microseconds of the host: do not time steps that are marked. The model is not
changed; modules inside a compiled model are not called, so they have no ranges, unless `compiled` opens these.

This package runs in the profiled process. It imports PyTorch, nvtx for ranges that nsys records, and nothing else.
"""

import importlib.util
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

JOINT = " + "  # in the name of a range, between the parts that one kernel of a compiled graph serves
RECOMPUTATION = "recomputation"  # the range around parts that a checkpoint computes again

# The public names, imported on first use: `when_imported` has to be there before PyTorch is.
_MODULES = {
    "mark": "modules", "ModuleParts": "modules", "module_names": "modules", "Marker": "marker", "Emitter": "marker",
    "record_function_emitter": "marker", "nvtx_emitter": "marker", "follow_backward": "backward",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


class when_imported:
    """Calls `call` with a module as soon as it has been imported; immediately if it already was."""

    def __init__(self, name: str, call: Callable[[ModuleType], object]) -> None:
        self.name, self.call = name, call
        self.is_searching = False  # inside find_spec, which asks all finders, this one included
        if name in sys.modules:
            call(sys.modules[name])
        else:
            sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Finds this one module by the other finders, and adds the call to its loader."""
        if fullname != self.name or self.is_searching:
            return None
        self.is_searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.is_searching = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_call(module: ModuleType) -> None:
                spec.loader.exec_module = execute
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    self.call(module)

            spec.loader.exec_module = execute_and_call
        return spec
