"""Training of a model of blocks that hold products of matrices alone, compiled by inductor or, with `eager`, not."""

import sys

import torch
from digest import print_digest
from torch import nn

torch.manual_seed(7)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16, bias=False), nn.Linear(16, 8, bias=False)

    def forward(self, x):
        return self.down(self.up(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList([Block(), Block()]), nn.Linear(8, 4, bias=False)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


model = Net().to(DEVICE)
called = model if sys.argv[1:] == ["eager"] else torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    called(torch.randn(4, 8, device=DEVICE)).backward(torch.ones(4, 4, device=DEVICE))
    optimizer.step()
    optimizer.zero_grad()
print_digest(model)
