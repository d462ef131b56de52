"""Optimizers that call a closure: LBFGS, several times a step; and SGD, as PyTorch Lightning calls it."""

import sys

import torch
from digest import print_digest
from torch import nn

torch.manual_seed(4)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)).to(DEVICE)
if sys.argv[1:] == ["lbfgs"]:
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
else:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(16, 8, device=DEVICE), torch.randn(16, 1, device=DEVICE)


def closure():
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    return loss


for _ in range(13):
    loss = optimizer.step(closure=closure)
print(f"loss {loss.item():.6f}")
print_digest(model)
