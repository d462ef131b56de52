"""Eight kernels, each once between cudaProfilerStart and cudaProfilerStop: prints the seconds of each, one line."""

import sys
import time

import torch

GIBIBYTES = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0  # in use besides, and of no part in it
OPERATIONS = (torch.exp, torch.sin, torch.cos, torch.sqrt, torch.abs, torch.neg, torch.tanh, torch.sigmoid)

numbers = torch.rand(2**20, device="cuda")
besides = torch.ones(int(GIBIBYTES * 2**30), dtype=torch.uint8, device="cuda")
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
print("seconds", *(f"{one:.4f}" for one in seconds), flush=True)
