"""Attention by PyTorch's scaled_dot_product_attention, one backend of it forced, instead of the written-out one."""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from cs336_model import ranges
from cs336_model.arithmetic.flops import shape_of
from cs336_model.model.transformer import CausalSelfAttention
from cs336_model.program.spec import RunSpec
from cs336_model.program.variants.precision import autocast
from cs336_model.program.variants.unsupported import Unsupported
from cs336_model.program.variants.values import BF16_WEIGHTS, EAGER
from cs336_model.ranges import span

BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
REFUSALS = ("No available kernel", "No viable backend")  # how PyTorch says so on a GPU, and on a CPU


def forced_backend(spec: RunSpec) -> AbstractContextManager:
    """The one backend that scaled_dot_product_attention may use inside, backward and recomputation included."""
    attention = spec.dimensions["attention"]
    return nullcontext() if attention == EAGER else sdpa_kernel(BACKENDS[attention])


def fused_attention(queries: Tensor, keys: Tensor, values: Tensor, future: Tensor) -> Tensor:
    """What the written-out attention computes: the same mask, since `future` holds all keys behind a query, and the
    same scale. Shapes (batch, head, position, d_head)."""
    with span(ranges.SCALED_DOT_PRODUCT_ATTENTION):
        return scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=queries.shape[-1] ** -0.5)


def with_attention(spec: RunSpec, model: nn.Module, device: torch.device) -> None:
    """Puts the wanted attention into every block. Raises Unsupported where PyTorch's backend refuses it here."""
    if spec.dimensions["attention"] == EAGER:
        return
    _try_once(spec, device)
    for module in model.modules():
        if isinstance(module, CausalSelfAttention):
            module.attend = fused_attention


def _try_once(spec: RunSpec, device: torch.device) -> None:
    """One call with the run's own precision, length and width of heads; what PyTorch warns of on the way is why."""
    sizes, dimensions = shape_of(vars(spec)), spec.dimensions
    d_head = sizes.d_model // sizes.num_heads
    dtype = torch.bfloat16 if dimensions["precision"] == BF16_WEIGHTS else torch.float32
    trains = ranges.BACKWARD in spec.phases
    heads = torch.zeros(
        1, 1, dimensions["context_length"], d_head, dtype=dtype, device=device, requires_grad=trains
    )  # fmt: skip
    with refusals(dimensions["attention"]), autocast(spec, device):
        # of one product, as in the model: autocast gives attention what its projections return
        queries = heads @ torch.eye(d_head, dtype=dtype, device=device)
        fused_attention(queries, queries, queries, None)


@contextmanager
def refusals(attention: str) -> Iterator[None]:
    """Raises Unsupported where PyTorch refuses, inside, the backend that is forced; what it warns of on the way is
    why."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            yield
        except RuntimeError as error:
            if not str(error).startswith(REFUSALS):
                raise
            why = " ".join([str(error), *dict.fromkeys(str(warning.message) for warning in said)])
            raise Unsupported(f"attention {attention}", why) from error
