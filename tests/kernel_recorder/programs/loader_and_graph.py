"""A DataLoader with workers, and, on a GPU, a forward and backward pass that is replayed as a CUDA graph.

python loader_and_graph.py small|large
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

STEPS = 12
WIDTHS = {"small": 16, "large": 4096}

if __name__ == "__main__":
    width = WIDTHS[sys.argv[1]]
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers).to(device)
    if on_gpu:
        model = torch.cuda.make_graphed_callables(model, (torch.randn(64, width, device=device),))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = iter(DataLoader(torch.randn(64 * 16, width), batch_size=64, num_workers=2, pin_memory=on_gpu))

    for _ in range(STEPS):
        batch = next(batches).to(device, non_blocking=True)
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
