"""Programs as people write them, by name: python programs.py NAME. Each prints what it leaves behind.

`python programs.py plainly FOLDER NAME ...` runs some, each in a fork of one process, and writes their output to files.
"""

import hashlib
import os
import random
import sys

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS = 14


def print_digest(*models):
    """A digest of the parameters and buffers of models and of the states of the random numbers."""
    digest = hashlib.sha256()
    for model in models:
        for name, tensor in sorted(model.state_dict().items()):
            digest.update(name.encode() + tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    digest.update(torch.get_rng_state().numpy().tobytes() + repr(random.getstate()).encode())
    if torch.cuda.is_initialized():
        digest.update(torch.cuda.get_rng_state().numpy().tobytes())
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


def randn(*shape):
    return torch.randn(*shape, device=DEVICE)


def train(model, optimizer):
    model(randn(4, 16)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def accumulates():
    """Gradient accumulation, clipping, a scheduler, autocast, and an evaluation every seventh step."""
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step in range(STEPS):
        if step % 7 == 6:
            with torch.no_grad():
                print(f"step {step}: validation {sum(model(randn(4, 16)).mean().item() for _ in range(3)):.6f}")
        for _ in range(2):
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                loss = model(randn(4, 16)).float().square().mean() / 2
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    print_digest(model)


def takes_turns():
    """Two models and two optimizers of one class; an error in a forward pass; and an exit status."""
    generator, discriminator = Net().to(DEVICE), Net().to(DEVICE)
    optimizers = [torch.optim.Adam(model.parameters()) for model in (discriminator, generator)]
    for step in range(STEPS):
        try:
            discriminator(randn(4, 15 if step == 7 else 16)).mean().backward()
        except RuntimeError as error:
            print("caught", error)
        for optimizer in optimizers:
            discriminator(generator(randn(4, 16)).repeat(1, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    print_digest(generator, discriminator)
    sys.exit(5)


class Decoder(nn.Module):
    """Keeps a running state in the place of a cache of keys and values."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(32, 16), nn.Linear(16, 32)

    def forward(self, input_ids, state=None):
        x = self.embedding(input_ids).cumsum(1) + (0 if state is None else state)
        return self.head(x[:, -1].tanh()), x[:, -1:]


def generates():
    """Text without an optimizer: a prompt, then one token after the other."""
    model = Decoder().to(DEVICE).eval()
    with torch.inference_mode():
        for _ in range(3):
            tokens, state = torch.randint(32, (2, 7), device=DEVICE), None
            for _ in range(6):
                logits, state = model(input_ids=tokens, state=state)
                tokens = torch.multinomial(logits.softmax(-1), 1)
            print(tokens.tolist())
    print_digest(model)


def compiles():
    """A compiled model and optimizer, trained; its batches change their size once. Prints what was compiled. The model
    consists of products of matrices alone, for which inductor compiles no C++."""
    import warnings

    warnings.filterwarnings("error", ".*global hooks.*")
    model = Net().to(DEVICE)
    called = torch.compile(model, dynamic=False, fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step = torch.compile(optimizer.step, backend="eager")
    for step in range(STEPS):
        batch = 6 if step >= 8 else 4
        called(randn(batch, 16)).backward(torch.ones(batch, 4, device=DEVICE))
        optimizer.step()
        optimizer.zero_grad()
    from torch._dynamo.utils import counters

    stats = counters["stats"]
    print("compiled", stats["unique_graphs"], stats["calls_captured"], dict(counters["graph_break"]))
    print_digest(model)


def profiles():
    """A profile of the program's own by a schedule, and later a recording of itself."""
    import kernel_tables

    model = Net().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def note(finished):
        counts = {event.key: event.count for event in finished.key_averages() if not event.key.startswith("cuda")}
        print(sorted(item for item in counts.items() if "profiler" not in item[0].lower()))

    planned = schedule(wait=1, warmup=1, active=2, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=planned, on_trace_ready=note) as profiler:
        for _ in range(6):
            with record_function("mine"):
                train(model, optimizer)
            profiler.step()
    recorded = kernel_tables.recorded("train", skip=6, steps=2, ranges="modules", output="inside.sqlite")
    step = recorded(train)
    for _ in range(STEPS):
        step(model, optimizer)
    with recorded.profile() as read:
        print(read.ranges()[["range", "instances", "kernels"]].sort_values("range").to_string(index=False))
    print_digest(model)


def joins():
    """A rank of Gloo under DistributedDataParallel."""
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        train(model, optimizer)
    if os.environ["RANK"] == "0":
        print_digest(model)
    torch.distributed.destroy_process_group()


def replays():
    """A training whose whole step is captured into a CUDA graph once and then replayed; it needs a GPU."""
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, side, graph = randn(16, 64), torch.cuda.Stream(), torch.cuda.CUDAGraph()

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        step()
    for number in range(STEPS):
        x.fill_(number / 14)
        graph.replay()
    print_digest(model)


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
            os.wait()
    else:
        run(sys.argv[1])
