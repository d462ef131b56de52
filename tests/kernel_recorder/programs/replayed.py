"""A training whose whole step is captured into a CUDA graph once and then replayed, or not if it is to be `eager`; it
needs a GPU."""

import sys

import torch
from digest import print_digest
from torch import nn

torch.manual_seed(14)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(16, 64, device="cuda"), torch.randn(16, 8, device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
if sys.argv[1:] != ["eager"]:
    with torch.cuda.graph(graph):
        loss = step()
for number in range(14):
    x.fill_(number / 14)
    if sys.argv[1:] == ["eager"]:
        loss = step()
    else:
        graph.replay()
print(f"loss {loss.item():.6f}")
print_digest(model)
