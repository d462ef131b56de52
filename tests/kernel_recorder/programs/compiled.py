"""A compiled model: its backend, the step in which its batches change their size, and whether it is trained, or its
optimizer compiled too.

The program prints what was compiled, how often and why again, without the counts of caches, which a recording does not
use. A warning of hooks is an error.
"""

import re
import sys
import warnings

import torch
from digest import print_digest
from torch import nn

warnings.filterwarnings("error", ".*global hooks.*")
torch.manual_seed(6)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKEND = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
CHANGES_AT = int(sys.argv[2]) if len(sys.argv) > 2 else 99
IS_TRAINED = sys.argv[3:] != ["inference"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.second(self.first(x).relu())


model = torch.compile(Net().to(DEVICE), backend=BACKEND, dynamic=False, fullgraph=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if IS_TRAINED else None
if sys.argv[3:] == ["optimizer"]:
    optimizer.step = torch.compile(optimizer.step, backend=BACKEND)
for step in range(14):
    x = torch.randn(4 if step < CHANGES_AT else 6, 8, device=DEVICE)
    with torch.set_grad_enabled(IS_TRAINED):
        loss = model(x).square().mean()
    if optimizer:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
from torch._dynamo.utils import counters, guard_failures  # noqa: E402 (imported by torch.compile)

assert counters["stats"]["unique_graphs"] > 0
counts = {
    name: {key: count for key, count in of_name.items() if not re.search("cache|bundler", key)}
    for name, of_name in counters.items()
}
print("compiled", counts, list(guard_failures.values()))
print_digest(model)
