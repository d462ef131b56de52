"""What one feed-forward layer on several devices computes and communicates, and when the second takes longer. No torch.

The layer has three matrices of D × D_FF (SwiGLU); its forward pass takes 6 B D D_FF FLOPs and its backward pass twice
that, for a batch of B tokens. Collectives are those of a ring (rings.py), in these layouts of N devices:

    data parallel    every device has all matrices and B/N tokens
    fully sharded    the same, and keeps 1/N of each matrix: gathers the others before each pass
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
FLOPS_PER_WEIGHT = {ranges.FORWARD: 2, ranges.BACKWARD: 4}  # of a token
MOST_DEVICES = 2**20
MANY = 2**40  # tokens, to measure slopes


@dataclass(frozen=True)
class Layer:
    """A feed-forward layer: tokens of the entire batch, widths, and the bytes of one weight (and its gradient), and of
    one activation."""

    tokens: float
    d_model: int
    d_ff: int
    weight_bytes: int
    activation_bytes: int

    @property
    def weights_bytes(self) -> int:
        return MATRICES * self.d_model * self.d_ff * self.weight_bytes

    def flops(self, of_pass: str) -> float:
        """FLOPs of one pass on all devices together."""
        return FLOPS_PER_WEIGHT[of_pass] * self.tokens * MATRICES * self.d_model * self.d_ff


@dataclass(frozen=True)
class Rates:
    """FLOPs per second of one device, and its links."""

    flop_per_s: float
    links: Links

    def compute_s(self, layer: Layer, of_pass: str, devices: int) -> float:
        """Seconds of the matrix multiplies of one pass."""
        return layer.flops(of_pass) / devices / self.flop_per_s

    def communication_s(self, layer: Layer, layout: str, of_pass: str, devices: int) -> float | None:
        """Seconds of the collectives of one pass, one after another; None if the layout needs another number of
        devices."""
        times = [self.links.seconds_of(every) for every in choices(layer, layout, of_pass, devices)]
        return min(times, default=None)


def choices(layer: Layer, layout: str, of_pass: str, devices: int) -> Iterator[tuple[Collective, ...]]:
    """The collectives of one pass, for each way to lay out the devices."""
    if layout == TWO_D:
        for x in range(2, devices // 2 + 1):
            if devices % x == 0:
                y = devices // x
                part = replace(layer, tokens=layer.tokens / x)
                yield (*_of_weights(layer.weights_bytes / y, of_pass, x), *_of_activations(part, y))
    elif layout == DATA:
        every = Collective(ALL_REDUCE, layer.weights_bytes, devices)
        yield (every,) if of_pass == ranges.BACKWARD else ()
    else:
        yield (
            _of_weights(layer.weights_bytes, of_pass, devices) if layout == SHARDED else _of_activations(layer, devices)
        )


def _of_weights(size_bytes: float, of_pass: str, devices: int) -> tuple[Collective, ...]:
    gathered = Collective(ALL_GATHER, size_bytes, devices)
    scattered = Collective(REDUCE_SCATTER, size_bytes, devices)
    return (gathered,) if of_pass == ranges.FORWARD else (gathered, scattered)


def _of_activations(layer: Layer, devices: int) -> tuple[Collective, ...]:
    """The outputs of the layer in the forward pass, the gradients of its inputs in the backward pass."""
    return (Collective(ALL_REDUCE, layer.tokens * layer.d_model * layer.activation_bytes, devices),)


def fewest_tokens(layer: Layer, layout: str, of_pass: str, devices: int, rates: Rates) -> float | None:
    """The fewest tokens of a batch whose communication takes no longer than its computation: 0 if any do, infinity if
    none do; None if the layout needs another number of devices.

    Per way to lay out the devices, both are linear in the tokens: communication takes a + b B seconds, computation c B.
    """
    none, many = replace(layer, tokens=0), replace(layer, tokens=MANY)
    c = rates.compute_s(many, of_pass, devices) / MANY
    ways = zip(choices(none, layout, of_pass, devices), choices(many, layout, of_pass, devices), strict=True)
    lines = [(rates.links.seconds_of(fixed), rates.links.seconds_of(every)) for fixed, every in ways]
    return min((_crossing(a, (at_many - a) / MANY, c) for a, at_many in lines), default=None)


def _crossing(a: float, b: float, c: float) -> float:
    """The smallest B ≥ 0 with a + b B ≤ c B."""
    if c > b:
        return a / (c - b)
    return 0.0 if a == 0 and b == c else math.inf


def most_devices(layer: Layer, layout: str, of_pass: str, rates: Rates) -> int:
    """The largest power of two of devices, up to MOST_DEVICES, on which communication takes no longer than
    computation, with the same rates on every number; 1 if on two (2-D: on four) it does."""
    most, devices = 1, 2
    while devices <= MOST_DEVICES:
        communication_s = rates.communication_s(layer, layout, of_pass, devices)
        if communication_s is not None:
            if communication_s > rates.compute_s(layer, of_pass, devices):
                break
            most = devices
        devices *= 2
    return most
