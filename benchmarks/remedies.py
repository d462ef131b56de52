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
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[1]


def loop(milliseconds: float = 0.0) -> None:
    """A training loop on random tokens, each step of which waits so long besides, on a GPU in a kernel."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Embedding(1000, 64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 1000)).to(device())
    tokens = torch.randint(0, 1000, (4, 32) if device() == "cpu" else (512, 512), device=device())

    def compute_loss() -> torch.Tensor:
        if device() == "cpu":
            wait(milliseconds)
        elif milliseconds:
            torch.cuda._sleep(round(milliseconds * 1.98e6))  # cycles of an H200's highest clock
        return model(tokens).logsumexp(-1).mean()

    train(model, compute_loss)


def train(model, compute_loss) -> None:
    """60 steps of AdamW."""
    import torch

    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(60):
        optimizer.zero_grad()
        compute_loss().backward()
        optimizer.step()


def wait(milliseconds: float) -> None:
    until_s = time.perf_counter() + milliseconds / 1e3
    while time.perf_counter() < until_s:
        pass


def slow_samples(shape: tuple[int, ...], classes: int = 10):
    """A dataset whose samples take 2 ms each, as of decoding."""
    import torch

    class Samples(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 2000

        def __getitem__(self, number: int):
            wait(2)
            return torch.randn(shape, generator=torch.Generator().manual_seed(number)), number % classes

    return Samples()


def trainer() -> None:
    """Hugging Face's Trainer with a BERT."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    torch.manual_seed(0)
    tokens = torch.randint(0, 30000, (4000, 128))
    data = [{"input_ids": row, "labels": number % 2} for number, row in enumerate(tokens)]
    config = BertConfig(hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, max_steps=60, per_device_train_batch_size=32, report_to=[])
        Trainer(BertForSequenceClassification(config), arguments, train_dataset=data).train()


def generate() -> None:
    """Hugging Face's generate with a GPT-2, token by token."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(bos_token_id=1, eos_token_id=1)).eval().to(device())
    tokens = torch.randint(2, 50000, (4, 64), device=device())
    model.generate(tokens, max_new_tokens=80, min_new_tokens=80, do_sample=False, pad_token_id=1)


def lightning() -> None:
    """PyTorch Lightning with a small network, and samples that take time."""
    import pytorch_lightning as pl
    import torch
    from torch import nn

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 512), nn.ReLU(), nn.Linear(512, 10))

        def training_step(self, batch, _):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    pl.seed_everything(0)
    data = torch.utils.data.DataLoader(slow_samples((3, 32, 32)), batch_size=16)
    pl.Trainer(max_steps=60, logger=False, enable_checkpointing=False, enable_progress_bar=False).fit(Module(), data)


def geometric() -> None:
    """PyTorch Geometric with a graph convolution of many small layers."""
    import torch
    from torch_geometric.nn.models import GCN

    torch.manual_seed(0)
    model = GCN(64, 64, num_layers=12, out_channels=8).to(device())
    features = torch.randn(2000, 64, device=device())
    edges = torch.randint(0, 2000, (2, 10000), device=device())
    train(model, lambda: model(features, edges).square().mean())


def resnet() -> None:
    """timm's ResNet-50."""
    import timm
    import torch

    torch.manual_seed(0)
    model, images = timm.create_model("resnet50").to(device()), torch.randn(64, 3, 224, 224, device=device())
    train(model, lambda: model(images).square().mean())


def vit() -> None:
    """timm's ViT-S with a small batch, and an optimizer with a loop over parameters."""
    import timm
    import torch

    torch.manual_seed(0)
    model = timm.create_model("vit_small_patch16_224").to(device())
    images = torch.randn(4, 3, 224, 224, device=device())
    train(model, lambda: model(images).square().mean())


def llama() -> None:
    """Hugging Face's Llama, whose products in fp32 take most of the time."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 16}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=8000, **sizes)).to(device())
    tokens = torch.randint(0, 8000, (8, 512), device=device())
    train(model, lambda: model(input_ids=tokens, labels=tokens).loss)


def ode() -> None:
    """torchdiffeq's solver, which calls a small network many times in a step."""
    import torch
    from torch import nn
    from torchdiffeq import odeint

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 32)).to(device())
    start, times = torch.randn(128, 32, device=device()), torch.linspace(0, 1, 10, device=device())
    train(model, lambda: odeint(lambda _, state: model(state), start, times, method="rk4").square().mean())


def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


PROGRAMS = {one.__name__: one for one in (trainer, generate, lightning, geometric, resnet, vit, llama, ode)}


def command(*words: str) -> list[str]:
    return [sys.executable, __file__, "run", *words]


def measure(words: list[str]) -> pd.DataFrame:
    """The table of a command of kernel-tables."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "table.json")
        subprocess.run([sys.executable, "-m", "kernel_tables", *words[:1], "-o", output, *words[1:]], cwd=ROOT)
        return pd.read_json(output) if output.exists() else pd.DataFrame()


def count_verdicts(after: list[str], comparisons: int, processes: str) -> None:
    """Compares the loop with this command, so often, and prints how often which verdict came out."""
    rows = [
        measure(["compare", "--processes", processes, shlex.join(command("loop")), shlex.join(after)])
        for _ in range(comparisons)
    ]
    table = pd.concat(rows)
    print(dict(Counter(table["verdict"])), f"median ratio {table['ratio'].median():.4f}, findable"
          f" {table['findable'].median():.1%}")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["same", "planted", "run", "all", *PROGRAMS])
    parser.add_argument("arguments", nargs="*", help="of `run`")
    parser.add_argument("--comparisons", type=int, default=100)
    parser.add_argument("--processes", default="6")
    parser.add_argument("--budget", default="30", help="minutes for each program (default: 30)")
    options = parser.parse_args()
    if options.what == "run":
        {"loop": loop, **PROGRAMS}[options.arguments[0]](*map(float, options.arguments[1:]))
    elif options.what in ("same", "planted"):
        ms = measure(["compare", "--processes", "1", *[shlex.join(command("loop"))] * 2])["before_ms"][0]
        planted = ["0"] if options.what == "same" else [str(0.05 * ms)]
        count_verdicts(command("loop", *planted), options.comparisons, options.processes)
    else:
        for name in PROGRAMS if options.what == "all" else [options.what]:
            words = ["--processes", options.processes, "--budget", options.budget, "--precision", "bf16"]
            table = measure(["try", *words, "--", *command(name)])
            table = table.drop(columns=["findable", "line"], errors="ignore").dropna(subset="predicted_percent")
            print(f"\n{name}: {PROGRAMS[name].__doc__}", table.to_markdown(index=False), sep="\n", flush=True)
