"""Programs as people write them, by name: python programs.py NAME. Each prints what it leaves behind.

`python programs.py plainly FOLDER NAME ...` runs some, each in a fork of one process, and writes their output to files.
"""

import hashlib
import multiprocessing
import os
import random
import sys

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

STEPS = 12


def print_digest(*models):
    """A digest of the parameters and buffers of models and of the states of the random numbers."""
    digest = hashlib.sha256()
    for model in models:
        for name, tensor in sorted(model.state_dict().items()):
            digest.update(name.encode() + tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    digest.update(torch.get_rng_state().numpy().tobytes() + repr(random.getstate()).encode())
    print("left", digest.hexdigest())


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32, bias=False), nn.Linear(32, 16, bias=False)

    def forward(self, x):
        return self.down(self.up(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList([Block(), Block()]), nn.Linear(16, 4, bias=False)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train(model, optimizer):
    model(torch.randn(4, 16)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def trains():
    """Two models, each with an optimizer, one of which calls a closure, clipping, a scheduler, autocast, an evaluation,
    an error in a forward pass, and an exit status."""
    generator, discriminator = Net(), Net()
    optimizers = [torch.optim.AdamW(model.parameters()) for model in (generator, discriminator)]
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizers[0], STEPS)

    def closure():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = discriminator(generator(torch.randn(4, 16)).repeat(1, 4)).float().square().mean()
        loss.backward()
        return loss

    for step in range(STEPS):
        if step == 6:
            with torch.no_grad():
                print(f"validation {sum(generator(torch.randn(4, 16)).mean().item() for _ in range(3)):.6f}")
        try:
            generator(torch.randn(4, 15 if step == 7 else 16)).mean().backward()
        except RuntimeError as error:
            print("caught", error)
        nn.utils.clip_grad_norm_(generator.parameters(), 1.0)
        optimizers[0].step()
        optimizers[1].step(closure)
        for optimizer in optimizers:
            optimizer.zero_grad()
        scheduler.step()
    print_digest(generator, discriminator)
    sys.exit(5)


def compiles():
    """A compiled model and optimizer, trained; its batches change their size once. Prints what was compiled. The model
    consists of products of matrices alone, for which inductor compiles no C++."""
    import warnings

    warnings.filterwarnings("error", ".*global hooks.*")
    model = Net()
    called = torch.compile(model, dynamic=False, fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step = torch.compile(optimizer.step, backend="eager")
    for step in range(STEPS):
        batch = 6 if step >= 8 else 4
        called(torch.randn(batch, 16)).backward(torch.ones(batch, 4))
        optimizer.step()
        optimizer.zero_grad()
    from torch._dynamo.utils import counters

    stats = counters["stats"]
    print("compiled", stats["unique_graphs"], stats["calls_captured"], dict(counters["graph_break"]))
    print_digest(model)


def profiles():
    """A profile of the program's own by a schedule, after steps without one."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def note(finished):
        counts = {event.key: event.count for event in finished.key_averages() if not event.key.startswith("cuda")}
        print(sorted(item for item in counts.items() if "profiler" not in item[0].lower()))

    for _ in range(STEPS):
        train(model, optimizer)
    planned = schedule(wait=1, warmup=1, active=2, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=planned, on_trace_ready=note) as profiler:
        for _ in range(6):
            with record_function("mine"):
                train(model, optimizer)
            profiler.step()
    print_digest(model)


def crashes():
    """A child that trains and fails, and its parent, which does the same afterwards."""
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fail():
        for batch in torch.utils.data.DataLoader(torch.randn(16, 8), batch_size=4):
            with record_function('n\u00e9"w\u202e'):
                loss = model(batch).sum()
            loss.backward()
            optimizer.step()
        raise torch.OutOfMemoryError("made up")

    child = multiprocessing.get_context("fork").Process(target=fail)
    child.start()
    child.join()
    print("child ended with", child.exitcode)
    fail()


def join(rank):
    torch.distributed.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=2)
    model = nn.parallel.DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        train(model, optimizer)
    torch.distributed.destroy_process_group()


def joins():
    """Two ranks of Gloo under DistributedDataParallel."""
    ranks = [multiprocessing.get_context("fork").Process(target=join, args=(rank,)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()


def run(name):
    random.seed(0)
    torch.manual_seed(1)
    globals()[name]()


def run_in_fork(folder, name):
    if os.fork() == 0:
        os.chdir(folder)
        output = os.open(f"{name}.out", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        sys.stdout = open(1, "w")  # noqa: SIM115
        status = 0
        try:
            run(name)
        except SystemExit as end:
            status = end.code
        print("status", status, flush=True)
        os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "plainly":
        for name in sys.argv[3:]:
            run_in_fork(sys.argv[2], name)
        for _ in sys.argv[3:]:
            os.wait()
    else:
        run(sys.argv[1])
