"""torch.compile: of the whole model, or of its attention modules alone, with a cache that nothing else has filled."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import torch
from torch import nn

from cs336_model import ranges
from cs336_model.model.transformer import CausalSelfAttention
from cs336_model.program.out_of_memory import OutOfMemoryError
from cs336_model.program.spec import RunSpec
from cs336_model.program.variants.unsupported import Unsupported
from cs336_model.program.variants.values import NOT_COMPILED, WHOLE_MODEL


def is_compiled(spec: RunSpec) -> bool:
    """Whether any of the model is compiled."""
    return spec.dimensions["compile"] != NOT_COMPILED


@contextmanager
def compiler_settings(spec: RunSpec) -> Iterator[None]:
    """What the compiler needs of the process: an empty cache, gone at the end, and ranges that are silent inside what
    is compiled. A range there would break the graph, and another program than the wanted one would be measured; in a
    capture the compiled program opens ranges of its own."""
    if not is_compiled(spec):
        yield
        return
    ranges.silence_where(torch.compiler.is_compiling)
    with TemporaryDirectory(prefix="inductor-", ignore_cleanup_errors=True) as cache:
        # Triton's cache lies below inductor's where it is not set
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        os.environ.pop("TRITON_CACHE_DIR", None)
        from torch._inductor import config

        config.cpp.enable_kernel_profile = True  # else no profile of a CPU program holds its fused kernels
        ranges.mark_compiled_graphs()
        yield


def with_compilation(spec: RunSpec, model: nn.Module) -> None:
    """Marks what is to be compiled; it is compiled when it is first called, and again for its backward pass."""
    if not is_compiled(spec):
        return
    if spec.dimensions["compile"] == WHOLE_MODEL:
        model.compile()
        return
    for module in model.modules():
        if isinstance(module, CausalSelfAttention):
            module.compile()


@contextmanager
def compiling(spec: RunSpec) -> Iterator[None]:
    """The first step of a compiled model happens inside. Raises Unsupported where this machine cannot compile it: no
    C++ compiler, no Triton for this GPU."""
    from torch._dynamo.exc import BackendCompilerFailed

    try:
        yield
    except BackendCompilerFailed as error:
        cause = error.inner_exception
        if isinstance(cause, OutOfMemoryError):
            raise cause from error
        raise Unsupported(f"compile {spec.dimensions['compile']}", f"{type(cause).__name__}: {cause}") from error


def graph_counts(spec: RunSpec, before: dict[str, int] | None = None) -> dict[str, int] | None:
    """Graphs that were compiled in this process until now, those of them since `before`, and the breaks between them;
    None where nothing is compiled."""
    if not is_compiled(spec):
        return None
    from torch._dynamo.utils import counters

    graphs = counters["stats"]["unique_graphs"]
    later = graphs - before["graphs"] if before else 0
    return {"graphs": graphs, "graphs_later": later, "graph_breaks": sum(counters["graph_break"].values())}
