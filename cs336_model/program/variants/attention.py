"""Attention by one backend of PyTorch's scaled_dot_product_attention, instead of the written-out one."""

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
from cs336_model.program.variants.values import BF16_WEIGHTS, EAGER
from cs336_model.program.without_times import Unsupported

BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
REFUSALS = ("No available kernel", "No viable backend")  # beginnings of PyTorch's errors on a GPU, and on a CPU


def forced_backend(spec: RunSpec) -> AbstractContextManager:
    """A context in which PyTorch's scaled_dot_product_attention may use only the run's backend, also in backward passes
    and recomputation; it allows all if the run's attention is not one of PyTorch's backends."""
    attention = spec.dimensions["attention"]
    return sdpa_kernel(BACKENDS[attention]) if attention in BACKENDS else nullcontext()


def fused_attention(queries: Tensor, keys: Tensor, values: Tensor, future: Tensor | None) -> Tensor:
    """The output of PyTorch's function, with the scale and the causal mask of the written-out attention; the argument
    `future` is not used. Shapes (batch, head, position, d_head)."""
    with ranges.span(ranges.SCALED_DOT_PRODUCT_ATTENTION):
        return scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=queries.shape[-1] ** -0.5)


def set_attention(spec: RunSpec, model: nn.Module, device: torch.device) -> None:
    """Puts the run's attention into every block. Raises Unsupported if PyTorch's backend refuses to run here."""
    if spec.dimensions["attention"] == EAGER:
        return
    _require_backend(spec, device)
    for module in model.modules():
        if isinstance(module, CausalSelfAttention):
            module.attend = fused_attention


def _require_backend(spec: RunSpec, device: torch.device) -> None:
    """Calls PyTorch's attention once with the run's precision, length and head size. Raises Unsupported with PyTorch's
    warnings if the backend refuses them."""
    dimensions, d_head = spec.dimensions, shape_of(vars(spec)).d_head
    dtype = torch.bfloat16 if dimensions["precision"] == BF16_WEIGHTS else torch.float32
    heads = torch.zeros(1, 1, dimensions["context_length"], d_head, dtype=dtype, device=device)
    heads.requires_grad_(ranges.BACKWARD in spec.phases)
    with refusals(dimensions["attention"]), autocast(spec, device):
        # inputs are outputs of a product, as in the model: under autocast they have another dtype
        inputs = heads @ torch.eye(d_head, dtype=dtype, device=device)
        fused_attention(inputs, inputs, inputs, future=None)


@contextmanager
def refusals(attention: str) -> Iterator[None]:
    """Raises Unsupported if PyTorch refuses the backend inside; its warnings are the reason."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except RuntimeError as error:
            if not str(error).startswith(REFUSALS):
                raise
            reason = " ".join([str(error), *dict.fromkeys(str(warning.message) for warning in caught)])
            raise Unsupported(f"attention {attention}", reason) from error
