"""Variants of a model that is made: its precision, its attention backend, its checkpoints, its compilation."""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from cs336_model import ranges
from cs336_model.device import is_out_of_memory
from cs336_model.model import CausalSelfAttention
from cs336_model.spec import Spec, split_sizes

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
BACKENDS = {"math": "MATH", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION"}


class Unsupported(Exception):
    """This machine lacks what a run needs. The message is one line of limited length without paths: it is published."""

    def __init__(self, reason: str) -> None:
        line = re.sub(r" *\(Triggered internally at [^)]*\)?", "", " ".join(reason.split()))
        line = re.sub(r"(?<![\w:/])/(?:[\w.+@-]+/)+", "", line)
        super().__init__(line if len(line) <= 500 else line[:500] + " ...")


def import_late_modules(spec: Spec) -> None:
    """Imports what PyTorch would import when it compiles or distributes a model, or makes its own optimizer:
    torch._dynamo has 800 modules. Call it before the process has its device."""
    is_distributed = spec.parallel in ("ddp", "fsdp")
    if spec.compile != "off" or spec.optimizer == "fused" or is_distributed:
        import torch._dynamo
    if is_distributed:
        import torch.distributed.algorithms.ddp_comm_hooks.default_hooks
        import torch.distributed.fsdp  # noqa: F401


def change_model(spec: Spec, model: nn.Module) -> None:
    """Turns the plain model into the run's variant, in place."""
    set_matmul_precision(spec.precision)
    if spec.precision == "bf16-weights":  # buffers (rotary angles) stay as they are
        for parameter in model.parameters():
            parameter.data = parameter.data.to(torch.bfloat16)
    attentions = [module for module in model.modules() if isinstance(module, CausalSelfAttention)]
    if spec.attention != "eager":
        for module in attentions:
            module.attend = fused_attention
    if spec.checkpoint != "0":
        model.group_blocks = partial(group_blocks, split_sizes(spec.checkpoint))
    if spec.compile != "off":
        prepare_compiler()
        for module in [model] if spec.compile == "on" else attentions:
            module.compile()


def set_matmul_precision(precision: str) -> None:
    """Sets for the process whether fp32 products use TF32: only in precision tf32, whatever PyTorch's default."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


def autocast(precision: str, device: torch.device) -> AbstractContextManager:
    """bf16 or fp16 for the operations that autocast considers safe, with fp32 weights; nothing in other precisions.
    Losses are not scaled: in fp16, gradients below 6e-8 are 0."""
    return torch.autocast(device.type, dtype=AUTOCAST[precision]) if precision in AUTOCAST else nullcontext()


def fused_attention(queries: Tensor, keys: Tensor, values: Tensor, future: Tensor | None) -> Tensor:
    """The output of PyTorch's function, with the scale and the causal mask of the written-out attention; the argument
    `future` is not used. Shapes (batch, head, position, d_head)."""
    with ranges.span("scaled dot product attention"):
        return scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=queries.shape[-1] ** -0.5)


@contextmanager
def forced_backend(attention: str) -> Iterator[None]:
    """A block in which PyTorch's attention may use only this backend, also in backward passes; any for another name.
    Raises Unsupported if PyTorch refuses it; its warnings are the reason."""
    if attention not in BACKENDS:
        yield
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, BACKENDS[attention])), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except RuntimeError as error:  # with the first words of PyTorch's on a GPU, and on a CPU, or of the compiler's
            refused = re.search("(No available kernel|No viable backend)[^'\"]*", str(error))
            if not refused:
                raise
            reasons = " ".join([refused[0], *dict.fromkeys(str(warning.message) for warning in caught)])
            raise Unsupported(f"attention {attention}: {reasons}") from error


def group_blocks(sizes: Sequence[int], blocks: Sequence[nn.Module]) -> list[Callable[..., Tensor]]:
    """What a forward pass calls one after another: checkpoints of `sizes[0]` blocks each, which keep only their input
    and compute the rest again in the backward pass (Chen et al. 2016, arXiv:1604.06174), with checkpoints of the
    remaining sizes inside them; without sizes, the blocks themselves."""
    from torch.utils.checkpoint import checkpoint

    if not sizes:
        return [*blocks]
    size, *inner = sizes
    calls = [partial(_call_in_turn, group_blocks(inner, blocks[first : first + size]))
             for first in range(0, len(blocks), size)]  # fmt: skip
    # nothing in a block is random
    return [partial(checkpoint, call, use_reentrant=False, preserve_rng_state=False) for call in calls]


def _call_in_turn(calls: Sequence[Callable[..., Tensor]], x: Tensor, *others: Any) -> Tensor:
    for call in calls:
        x = call(x, *others)
    return x


def prepare_compiler() -> None:
    """Settings of the process for the compiler: spans do nothing while a graph is traced, which they would break. In a
    capture, the compiled code opens ranges of its own."""
    from torch._inductor import config

    config.cpp.enable_kernel_profile = True  # otherwise profiles of a CPU program lack its fused kernels
    ranges.mark_compiled(torch.compiler.is_compiling)


@contextmanager
def compiling(spec: Spec) -> Iterator[None]:
    """A block for the first step of a compiled model. Raises Unsupported if this machine cannot compile it (no C++
    compiler, no Triton for this GPU); out of memory stays what it is."""
    if spec.compile == "off":
        yield
        return
    from torch._dynamo.exc import BackendCompilerFailed

    try:
        yield
    except BackendCompilerFailed as error:
        cause = error.inner_exception
        if is_out_of_memory(cause):
            raise cause from error
        raise Unsupported(f"compile {spec.compile}: {type(cause).__name__}: {cause}") from error
