"""A model that cannot be made in the second process of a run."""

import os

from torch import nn


class Model(nn.Module):
    def __init__(self, vocab_size, d_model, **shape):
        super().__init__()
        if os.environ["RANK"] == "1":
            raise RuntimeError("the second rank has this error")
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        return self.head(self.embedding(tokens))
