"""Opens a range around every module of a PyTorch model, forward and backward: a profiler then shows what each launched.

    from kernel_tables.marks import mark

    with torch.profiler.profile() as profile, mark(model):  # for nsys: mark(model, nvtx_emitter())
        model(x).sum().backward()

The ranges are `Model`, `layers.mlp` and so on, and inside `backward` the same ones again, around the operations that
differentiate theirs. A range takes some microseconds of the host: do not time steps that are marked. The model is not
changed; modules inside a compiled model are not called, so they have no ranges, unless `compiled` opens these.

This package runs in the profiled process. It imports PyTorch, nvtx for ranges that nsys records, and nothing else.
"""

from importlib import import_module
from typing import Any

JOINT = " + "  # in the name of a range, between the parts that one kernel of a compiled graph serves
RECOMPUTATION = "recomputation"  # the range around parts that a checkpoint computes again

# The public names, imported on first use: `imports` has to be there before PyTorch is.
_MODULES = {
    "mark": "modules", "ModuleParts": "modules", "module_names": "modules", "Marker": "marker", "Emitter": "marker",
    "record_function_emitter": "marker", "nvtx_emitter": "marker", "follow_backward": "backward",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
