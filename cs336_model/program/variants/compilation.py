"""torch.compile: of the entire model, or of its attention modules only, with an empty cache."""

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
from cs336_model.program.variants.values import NOT_COMPILED, WHOLE_MODEL
from cs336_model.program.without_times import Unsupported


def is_compiled(spec: RunSpec) -> bool:
    """Whether a part of the model is compiled."""
    return spec.dimensions["compile"] != NOT_COMPILED


@contextmanager
def compiler_settings(spec: RunSpec) -> Iterator[None]:
    """Settings of the process for the compiler: an empty cache, deleted at the end, and no ranges inside compiled code,
    where they would break the graph. In a capture, the compiled code opens other ranges."""
    if not is_compiled(spec):
        yield
        return
    ranges.silence_where(torch.compiler.is_compiling)
    with TemporaryDirectory(prefix="inductor-", ignore_cleanup_errors=True) as cache:
        # Triton's cache is below inductor's unless it is set
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        os.environ.pop("TRITON_CACHE_DIR", None)
        from torch._inductor import config

        config.cpp.enable_kernel_profile = True  # otherwise profiles of a CPU program lack its fused kernels
        ranges.mark_compiled_graphs()
        yield


def with_compilation(spec: RunSpec, model: nn.Module) -> None:
    """Marks what to compile; it is compiled when it is first called, and again for its backward pass."""
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
    """A with block for the first step of a compiled model. Raises Unsupported if this machine cannot compile it: no C++
    compiler, no Triton for this GPU."""
    from torch._dynamo.exc import BackendCompilerFailed

    try:
        yield
    except BackendCompilerFailed as error:
        cause = error.inner_exception
        if isinstance(cause, OutOfMemoryError):
            raise cause from error
        raise Unsupported(f"compile {spec.dimensions['compile']}", f"{type(cause).__name__}: {cause}") from error


def graph_counts(spec: RunSpec, before: dict[str, int] | None = None) -> dict[str, int] | None:
    """Graphs that this process has compiled, those of them since `before`, and the breaks between them; None if nothing
    is compiled."""
    if not is_compiled(spec):
        return None
    from torch._dynamo.utils import counters

    graphs = counters["stats"]["unique_graphs"]
    later = graphs - before["graphs"] if before else 0
    return {"graphs": graphs, "graphs_later": later, "graph_breaks": sum(counters["graph_break"].values())}
