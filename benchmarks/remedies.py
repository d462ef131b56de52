"""Is a comparison right, and what do remedies save? `python benchmarks/remedies.py same|planted|NAME ...`.

`same` compares a small training loop with itself, `planted` with one whose step is 5 % longer, and prints how often a
difference is told. A NAME of PROGRAMS, or `all`, runs `kernel-tables try` on programs of public libraries, and prints
what was predicted and measured. `run NAME` is that program itself.
"""

import argparse
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROOT = Path(__file__).parents[1]


def loop(milliseconds: float = 0.0) -> None:
    """A training loop on random tokens, each step of which waits so long besides, on a GPU in a kernel."""
    model = nn.Sequential(nn.Embedding(1000, 64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 1000)).to(DEVICE)
    tokens = torch.randint(0, 1000, (4, 32) if DEVICE == "cpu" else (512, 512), device=DEVICE)

    def compute_loss() -> torch.Tensor:
        if DEVICE == "cpu":
            wait(milliseconds)
        elif milliseconds:
            torch.cuda._sleep(round(milliseconds * 1.98e6))  # cycles of an H200's highest clock
        return model(tokens).logsumexp(-1).mean()

    train(model, compute_loss)


def train(model: nn.Module, compute_loss: Callable[[], torch.Tensor]) -> None:
    """60 steps of AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(60):
        optimizer.zero_grad()
        compute_loss().backward()
        optimizer.step()


def wait(milliseconds: float) -> None:
    until_s = time.perf_counter() + milliseconds / 1e3
    while time.perf_counter() < until_s:
        pass


class SlowSamples(torch.utils.data.Dataset):
    """Images that take 2 ms each, as of decoding."""

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        wait(2)
        return torch.randn(3, 32, 32, generator=torch.Generator().manual_seed(number)), number % 10


def trainer() -> None:
    """Transformers: Trainer with a BERT"""
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    data = [{"input_ids": row, "labels": number % 2} for number, row in enumerate(torch.randint(0, 30000, (4000, 128)))]
    config = BertConfig(hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, max_steps=60, per_device_train_batch_size=32, report_to=[])
        Trainer(BertForSequenceClassification(config), arguments, train_dataset=data).train()


def generate() -> None:
    """Transformers: generate with GPT-2"""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(bos_token_id=1, eos_token_id=1)).eval().to(DEVICE)
    tokens = torch.randint(2, 50000, (4, 64), device=DEVICE)
    model.generate(tokens, max_new_tokens=80, min_new_tokens=80, do_sample=False, pad_token_id=1)


def llama() -> None:
    """Transformers: Llama, fp32"""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 16}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=8000, **sizes)).to(DEVICE)
    tokens = torch.randint(0, 8000, (8, 512), device=DEVICE)
    train(model, lambda: model(input_ids=tokens, labels=tokens).loss)


def lightning() -> None:
    """PyTorch Lightning, samples of 2 ms"""
    import pytorch_lightning as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 512), nn.ReLU(), nn.Linear(512, 10))

        def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters())

    data = torch.utils.data.DataLoader(SlowSamples(), batch_size=16)
    pl.Trainer(max_steps=60, logger=False, enable_checkpointing=False, enable_progress_bar=False).fit(Module(), data)


def geometric() -> None:
    """PyTorch Geometric: GCN of 12 layers"""
    from torch_geometric.nn.models import GCN

    model = GCN(64, 64, num_layers=12, out_channels=8).to(DEVICE)
    features, edges = torch.randn(2000, 64, device=DEVICE), torch.randint(0, 2000, (2, 10000), device=DEVICE)
    train(model, lambda: model(features, edges).square().mean())


def resnet(name: str = "resnet50", batch: int = 64) -> None:
    """timm: ResNet-50, batch 64"""
    import timm

    model, images = timm.create_model(name).to(DEVICE), torch.randn(batch, 3, 224, 224, device=DEVICE)
    train(model, lambda: model(images).square().mean())


def vit() -> None:
    """timm: ViT-S, batch 4"""
    resnet("vit_small_patch16_224", 4)


def ode() -> None:
    """torchdiffeq: Runge-Kutta with a small network"""
    from torchdiffeq import odeint

    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 32)).to(DEVICE)
    start, times = torch.randn(128, 32, device=DEVICE), torch.linspace(0, 1, 10, device=DEVICE)
    train(model, lambda: odeint(lambda _, state: model(state), start, times, method="rk4").square().mean())


PROGRAMS = {one.__name__: one for one in (trainer, generate, llama, lightning, geometric, resnet, vit, ode)}


def command(*words: str) -> list[str]:
    return [sys.executable, __file__, "run", *words]


def measure(words: list[str]) -> pd.DataFrame:
    """The table of a command of kernel-tables."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "table.json")
        subprocess.run([sys.executable, "-m", "kernel_tables", *words[:1], "-o", output, *words[1:]], cwd=ROOT)
        return pd.read_json(output) if output.exists() else pd.DataFrame()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["same", "planted", "run", "all", *PROGRAMS])
    parser.add_argument("arguments", nargs="*", help="of `run`")
    parser.add_argument("--comparisons", type=int, default=100)
    parser.add_argument("--processes", default="6")
    options = parser.parse_args()
    if options.what == "run":
        torch.manual_seed(0)
        {"loop": loop, **PROGRAMS}[options.arguments[0]](*map(float, options.arguments[1:]))
    elif options.what in ("same", "planted"):
        before = shlex.join(command("loop"))
        ms = measure(["compare", "--processes", "1", before, before])["before_ms"][0]
        after = shlex.join(command("loop", str(0 if options.what == "same" else 0.05 * ms)))
        words = ["compare", "--processes", options.processes, before, after]
        table = pd.concat([measure(words) for _ in range(options.comparisons)])
        print(dict(Counter(table["verdict"])), table[["ratio", "findable"]].describe().to_markdown(), sep="\n")
    else:
        for name in PROGRAMS if options.what == "all" else [options.what]:
            table = measure(["try", "--processes", options.processes, "--precision", "bf16", "--", *command(name)])
            table = table.drop(columns=["findable", "line"], errors="ignore").dropna(subset="before_ms")
            print(f"\n{name}: {PROGRAMS[name].__doc__}", table.to_markdown(index=False), sep="\n", flush=True)
