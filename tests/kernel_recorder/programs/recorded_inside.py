"""A program that records itself by kernel_tables.recorded."""

import torch
from digest import print_digest
from torch import nn

import kernel_tables

torch.manual_seed(8)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@(recording := kernel_tables.recorded("train", skip=6, steps=2, ranges="modules", output="inside.sqlite"))
def train():
    model(torch.randn(4, 8, device=DEVICE)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


for _ in range(14):
    train()
with recording.trace() as trace:
    print(trace.range_tree()[["range", "instances", "kernels"]].sort_values("range").to_string(index=False))
print_digest(model)
