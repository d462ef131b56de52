"""The kind of an outermost call of a module, by gradients and shapes: forward, inference, prefill, decode."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

FORWARD, INFERENCE = "forward", "inference"  # with and without gradients
PREFILL, DECODE = "prefill", "decode"  # of a prompt, and of one token after it
MOST_SHAPES = 2  # of a call's tensors


class Passes:
    """Names passes, and counts those of each step: `steps` has a Counter of texts such as "GPT forward 8x128"."""

    def __init__(self) -> None:
        self._longest: dict[int, int] = {}  # tokens in a call of a module, by its id
        self._decoding: set[int] = set()  # modules that were called with one token after a longer call
        self.steps: list[Counter[str]] = []

    def step_begins(self) -> None:
        self.steps.append(Counter())

    def kind(self, module: nn.Module, args: tuple, keywords: dict[str, Any]) -> str:
        """The kind of a call that is about to begin."""
        if torch.is_grad_enabled():
            return FORWARD
        tokens, number = _tokens(args, keywords), id(module)
        self._longest[number] = max(self._longest.get(number, 0), tokens or 0)
        if tokens == 1 and self._longest[number] > 1:
            self._decoding.add(number)
        if tokens is None or number not in self._decoding:
            return INFERENCE
        return DECODE if tokens == 1 else PREFILL

    def count(self, name: str | None, kind: str, args: tuple, keywords: dict[str, Any]) -> None:
        """Counts a call of the module of this name."""
        if self.steps:
            shapes = ["x".join(map(str, tensor.shape)) for tensor in _tensors(args, keywords)][:MOST_SHAPES]
            self.steps[-1][" ".join([name or "", kind, *shapes])] += 1


def _tokens(args: tuple, keywords: dict[str, Any]) -> int | None:
    """Tokens per sequence of a call, if its first integer tensor with two dimensions gives them; else None."""
    numbers = (tensor for tensor in _tensors(args, keywords) if not tensor.is_floating_point() and tensor.dim() == 2)
    return next((tensor.shape[1] for tensor in numbers), None)


def _tensors(args: tuple, keywords: dict[str, Any]) -> Iterator[Tensor]:
    return (value for value in (*args, *keywords.values()) if isinstance(value, Tensor))
