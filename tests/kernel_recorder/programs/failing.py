"""A program that fails in a forward pass, and says where."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(14):
    try:
        model(torch.randn(2, 7 if step == 7 else 8, device=DEVICE)).sum().backward()
    except RuntimeError as error:
        print("caught", error)
    optimizer.step()
    optimizer.zero_grad()
raise SystemExit(5)
