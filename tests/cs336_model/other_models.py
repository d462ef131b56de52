"""Models of other people: ones that return what they are told, and ones that fail."""

from types import SimpleNamespace

import torch
from torch import nn


def find_logits(model, tokens):
    return model.head(model.embedding(tokens))


class LM(nn.Module):
    """Returns its logits in one of several ways."""

    def __init__(self, *, vocab=50, width=8, returned="logits", step=False):
        super().__init__()
        self.embedding, self.head, self.returned = nn.Embedding(vocab, width), nn.Linear(width, vocab), returned
        if step:
            self.step = nn.Identity()

    def forward(self, tokens):
        logits = getattr(self, "step", nn.Identity())(find_logits(self, tokens))
        return {
            "logits": logits, "tuple": (logits.sum(), logits), "mapping": {"logits": logits},
            "object": SimpleNamespace(logits=logits), "hidden": SimpleNamespace(hidden=logits),
            "one position": logits[:, -1:],
        }[self.returned]  # fmt: skip


class WithLabels(LM):
    """Computes its loss if it gets `labels`, which it shifts."""

    def forward(self, tokens, labels=None):
        logits = super().forward(tokens)
        loss = None if labels is None else nn.functional.cross_entropy(logits[:, :-1].mT, labels[:, 1:])
        return SimpleNamespace(logits=logits, loss=loss)


class Failing(nn.Module):
    """Raises `error` from its call number `at` (0-based) on; without an error, its logits are `value` from then on."""

    def __init__(self, error: BaseException | None = None, at: int = 0, value: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(50))
        self.error, self.at, self.value, self.calls = error, at, value, 0

    def forward(self, tokens):
        self.calls += 1
        if self.calls > self.at and self.error:
            raise self.error
        return self.weight.expand(*tokens.shape, -1) + (self.value if self.calls > self.at else 0.0)


def no_module(**sizes):
    return LM
