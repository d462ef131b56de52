"""Two ranks of Gloo under DistributedDataParallel."""

import os

import torch
import torch.distributed
from digest import print_digest
from torch import nn

torch.distributed.init_process_group("gloo")
torch.manual_seed(10)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(14):
    model(torch.randn(4, 8) + torch.distributed.get_rank()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
if os.environ["RANK"] == "0":
    print_digest(model)
torch.distributed.destroy_process_group()
