"""Eight kernels, each once between cudaProfilerStart and cudaProfilerStop: prints the seconds of each, one line."""

import time

import torch

OPERATIONS = (torch.exp, torch.sin, torch.cos, torch.sqrt, torch.abs, torch.neg, torch.tanh, torch.sigmoid)

numbers = torch.rand(2**20, device="cuda")
for operation in OPERATIONS:
    operation(numbers)
torch.cuda.synchronize()
torch.cuda.profiler.start()
seconds = []
for operation in OPERATIONS:
    started = time.perf_counter()
    operation(numbers)
    torch.cuda.synchronize()
    seconds.append(time.perf_counter() - started)
torch.cuda.profiler.stop()
print("seconds", *(f"{launch:.4f}" for launch in seconds), flush=True)
