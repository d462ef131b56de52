"""What one feed-forward layer on several devices computes and communicates, and which takes longer. Imports no torch.

The layer has three matrices of D × D_FF (SwiGLU); its forward pass takes 6 B D D_FF FLOPs and its backward pass twice
that, for a batch of B tokens. Collectives are those of a ring (rings.py), in these layouts of N devices:

    data parallel    every device has all matrices and B/N tokens
    fully sharded    every device has B/N tokens and 1/N of each matrix, and gathers the rest before each pass
    tensor parallel  every device has all tokens and D_FF/N columns
    2-D              X × Y devices: fully sharded over X, tensor parallel over Y, so that communication is least
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cs336_model import ranges
from cs336_model.arithmetic.rings import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, Collective, Links

DATA, SHARDED, TENSOR, TWO_D = LAYOUTS = ("data parallel", "fully sharded", "tensor parallel", "2-D")
PASSES = (ranges.FORWARD, ranges.BACKWARD)
MATRICES = 3
BACKWARD_IN_FORWARDS = 2  # each matrix product of the forward pass has two in the backward pass, each as large
FLOPS_PER_WEIGHT = {ranges.FORWARD: 2, ranges.BACKWARD: 2 * BACKWARD_IN_FORWARDS}  # per token
MAX_DEVICES = 2**20
MANY_TOKENS = 2**40  # so many that seconds ÷ tokens is the slope of a straight line


@dataclass(frozen=True)
class Layer:
    """A feed-forward layer: tokens of the entire batch, widths, bytes of one weight (or of its gradient), and bytes of
    one activation."""

    tokens: float
    d_model: int
    d_ff: int
    weight_bytes: int
    activation_bytes: int

    @property
    def matrices_bytes(self) -> int:
        return MATRICES * self.d_model * self.d_ff * self.weight_bytes

    def flops(self, pass_name: str) -> float:
        """FLOPs of one pass on all devices together."""
        return FLOPS_PER_WEIGHT[pass_name] * self.tokens * MATRICES * self.d_model * self.d_ff


@dataclass(frozen=True)
class Rates:
    """FLOPs per second of one device, and its links."""

    flop_per_s: float
    links: Links

    def compute_s(self, layer: Layer, pass_name: str, devices: int) -> float:
        """Seconds of the matrix multiplies of one pass."""
        return layer.flops(pass_name) / devices / self.flop_per_s

    def communication_s(self, layer: Layer, layout: str, pass_name: str, devices: int) -> float | None:
        """Seconds of the collectives of one pass, one after another; None if the layout needs another number of
        devices."""
        options = collective_options(layer, layout, pass_name, devices)
        return min(map(self.links.total_seconds, options), default=None)


def collective_options(layer: Layer, layout: str, pass_name: str, devices: int) -> Iterator[tuple[Collective, ...]]:
    """The collectives of one pass, in order. In 2-D, there is one option for each way to write `devices` as X × Y, with
    X and Y above 1; in other layouts, one option."""
    if layout == TWO_D:
        for x in range(2, devices // 2 + 1):
            if devices % x == 0:
                y = devices // x
                x_share = replace(layer, tokens=layer.tokens / x)
                weights = _weight_collectives(layer.matrices_bytes / y, pass_name, devices=x)
                yield (*weights, *_activation_collectives(x_share, devices=y))
    elif layout == DATA:
        gradients = Collective(ALL_REDUCE, layer.matrices_bytes, devices)
        yield (gradients,) if pass_name == ranges.BACKWARD else ()
    elif layout == SHARDED:
        yield _weight_collectives(layer.matrices_bytes, pass_name, devices)
    else:
        yield _activation_collectives(layer, devices)


def _weight_collectives(size_bytes: float, pass_name: str, devices: int) -> tuple[Collective, ...]:
    gather = Collective(ALL_GATHER, size_bytes, devices)
    scatter = Collective(REDUCE_SCATTER, size_bytes, devices)  # of the gradients
    return (gather,) if pass_name == ranges.FORWARD else (gather, scatter)


def _activation_collectives(layer: Layer, devices: int) -> tuple[Collective, ...]:
    """One all-reduce: of the outputs in the forward pass, of the gradients of the inputs in the backward pass."""
    return (Collective(ALL_REDUCE, layer.tokens * layer.d_model * layer.activation_bytes, devices),)


def fewest_tokens(layer: Layer, layout: str, pass_name: str, devices: int, rates: Rates) -> float | None:
    """The tokens of the smallest batch whose communication takes no longer than its computation: 0 if that holds for
    every batch, infinity if it holds for none; None if the layout needs another number of devices.

    For B tokens, each option of collectives takes a + b B seconds, and the computation takes c B seconds.
    """
    many = replace(layer, tokens=MANY_TOKENS)
    c = rates.compute_s(many, pass_name, devices) / MANY_TOKENS
    seconds_without_tokens, seconds_with_many = (
        [rates.links.total_seconds(option) for option in collective_options(batch, layout, pass_name, devices)]
        for batch in (replace(layer, tokens=0), many)
    )
    options = zip(seconds_without_tokens, seconds_with_many, strict=True)
    return min((_crossing(a, (with_many - a) / MANY_TOKENS, c) for a, with_many in options), default=None)


def _crossing(a: float, b: float, c: float) -> float:
    """The smallest B ≥ 0 with a + b B ≤ c B; infinity if there is none."""
    if c > b:
        return a / (c - b)
    return 0.0 if a == 0 and b == c else math.inf


def most_devices(layer: Layer, layout: str, pass_name: str, rates: Rates) -> int:
    """The number of devices, a power of two up to MAX_DEVICES, up to which communication takes no longer than
    computation; 1 if it takes longer even on two devices (2-D: on four). All numbers of devices have the same rates."""
    most, devices = 1, 2
    while devices <= MAX_DEVICES:
        communication_s = rates.communication_s(layer, layout, pass_name, devices)
        if communication_s is not None:  # 2-D needs four devices
            if communication_s > rates.compute_s(layer, pass_name, devices):
                break
            most = devices
        devices *= 2
    return most
