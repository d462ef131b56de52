"""A program with a profile of its own, by a schedule whose active steps lie in the middle of its run."""

import sys

import torch
from digest import print_digest
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

torch.manual_seed(7)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = []


def tell(finished):
    """Notes how often each operator and range ran. Calls of CUDA depend on what the allocator has left."""
    counts = {event.key: event.count for event in finished.key_averages() if not event.key.startswith("cuda")}
    seen.append(sorted(item for item in counts.items() if "profiler" not in item[0].lower()))


def step():
    with (
        record_function("mine"),
        torch.cuda.nvtx.range("other") if DEVICE == "cuda" else record_function("other"),
    ):
        model(torch.randn(4, 8, device=DEVICE)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def train(steps, profiler=None):
    for _ in range(steps):
        step()
        if profiler:
            profiler.step()


if sys.argv[1:] == ["late"]:
    train(8)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        train(2)
    tell(profiler)
    train(4)
else:
    planned = schedule(wait=1, warmup=1, active=3, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=planned, on_trace_ready=tell) as profiler:
        train(20, profiler)
print(seen)
print_digest(model)
